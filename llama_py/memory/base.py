"""What a context asks of its memory (llama-memory.h), and where memories put their tensors."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Protocol

from ggml_py.backend import Buffer, Bytes, Device
from ggml_py.errors import AllocError
from ggml_py.tensor import Tensor
from llama_py.batch import BatchSplitter, UBatch
from llama_py.memory.io import StateReader, StateWriter

if TYPE_CHECKING:
    from llama_py.memory.kv import KVCache

log = logging.getLogger("llama_py")


class MemoryContext(Protocol):
    """A batch's ubatches, each with the place it will take (llama_memory_context_i)."""

    def next(self) -> bool:
        """Go to the next ubatch; False after the last."""

    def apply(self) -> None:
        """Take the place of the current ubatch in the memory."""

    def get_ubatch(self) -> UBatch:
        """The current ubatch."""


class Memory(Protocol):
    """What a model remembers of its sequences (llama_memory_i).

    Position ranges are [p0, p1); a negative p0 means 0, a negative p1 no end. seq_id -1 in seq_rm,
    state_write and state_read means all sequences.
    """

    def init_batch(
        self, splitter: BatchSplitter, n_ubatch: int, embd_all: bool = False
    ) -> MemoryContext:
        """Split a batch and find a place for all of it; ContextError and no change if none."""

    def init_full(self, n_seqs: int | None = None) -> MemoryContext:
        """As if the memory were full, for graphs of n_seqs sequences (None: all) that are only
        measured."""

    def discard(self, ubatch: UBatch) -> list[int]:
        """Forget a ubatch that was applied but not computed. Returns the sequences that had to be
        removed entirely, because their earlier state is gone too."""

    def clear(self, data: bool = True) -> None:
        """Forget everything; with `data` zero the tensors as well."""

    def seq_rm(self, seq_id: int, p0: int = -1, p1: int = -1) -> bool:
        """Remove positions of a sequence. False, and no change, if only some of them can go."""

    def seq_cp(self, src: int, dst: int, p0: int = -1, p1: int = -1) -> None:
        """Let dst have src's positions too."""

    def seq_keep(self, seq_id: int) -> None:
        """Remove all other sequences."""

    def seq_add(self, seq_id: int, p0: int, p1: int, delta: int) -> None:
        """Move positions by delta."""

    def seq_div(self, seq_id: int, p0: int, p1: int, d: int) -> None:
        """Divide positions by d."""

    def seq_pos_min(self, seq_id: int) -> int:
        """Smallest position of a sequence; -1 if it is empty."""

    def seq_pos_max(self, seq_id: int) -> int:
        """Largest position of a sequence; -1 if it is empty."""

    def kv_caches(self) -> list[KVCache]:
        """The attention caches it has."""

    def memory_breakdown(self) -> dict[str, int]:
        """Bytes by device name."""

    def layout(self) -> str:
        """What must agree for a saved state to be read back: kinds, layers, types, row sizes."""

    def state_write(self, io: StateWriter, seq_id: int = -1, partial: bool = False) -> None:
        """Write sequences; `partial` leaves out what seq_rm can always restore (attention)."""

    def state_read(self, io: StateReader, seq_id: int = -1, partial: bool = False) -> None:
        """Replace sequences by written ones; ContextError if they do not fit."""


def allocate(
    what: str, told_as: str, placed: Sequence[tuple[Device, Tensor]]
) -> list[tuple[Device, Buffer]]:
    """Zeroed memory for tensors, one buffer a device; AllocError if a device has too little.

    told_as   how a line of the log begins, with a place for the device
    """
    buffers: list[tuple[Device, Buffer]] = []
    for device in dict.fromkeys(d for d, _ in placed):
        mine = [t for d, t in placed if d is device]
        size = 0
        for t in mine:
            t.offset = size
            size += -(-t.nbytes // device.alignment) * device.alignment
        free, total = device.memory()
        if total and size > free:
            raise AllocError(
                f"the {what} needs {size / 2**20:.0f} MiB on {device.name}, which has"
                f" {free / 2**20:.0f} MiB free; use a smaller n_ctx or n_seq_max"
            )
        buffer = device.alloc(size)
        for t in mine:
            t.buffer = buffer
        buffers.append((device, buffer))
        log.info(f"{told_as} buffer size = %8.2f MiB", device.name, size / 2**20)
    return buffers


def mib(tensors: Iterable[Tensor]) -> float:
    """Their size in MiB."""
    return sum(t.nbytes for t in tensors) / 2**20


def sizes_by_device(buffers: Iterable[tuple[Device, Buffer]]) -> dict[str, int]:
    """Bytes by device name."""
    sizes: dict[str, int] = {}
    for device, buffer in buffers:
        sizes[device.name] = sizes.get(device.name, 0) + buffer.size
    return sizes


def read_part(t: Tensor, start: int, size: int) -> Bytes:
    """`size` bytes of a tensor from byte `start`, copied to the host."""
    assert t.buffer is not None
    return t.buffer.read(t.offset + start, size)


def write_part(t: Tensor, start: int, data: Bytes) -> None:
    """Put bytes into a tensor from byte `start`."""
    assert t.buffer is not None
    t.buffer.write(t.offset + start, data)
