"""Recurrent states in slots: one row per sequence number, with the convolution's inputs and then
the state (ik_llama.cpp llama.cpp: llama_kv_cache_init, cache.s_l)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import copy
from dataclasses import dataclass
from itertools import groupby

from ggml_py.backend import Device
from ggml_py.errors import ContextError
from ggml_py.tensor import Tensor
from ggml_py.types import F32
from llama_py.batch import UBatch
from llama_py.batch.splitter import BatchSplitter
from llama_py.memory.base import (
    LayerKey,
    allocate,
    key_name,
    layer_list,
    log,
    mib,
    read_part,
    write_part,
    zero_row,
)
from llama_py.memory.io import StateReader, StateWriter
from llama_py.memory.joined import Whole, read_row, write_row
from llama_py.memory.part import NumberedStates, StateWalk, check_seqs
from llama_py.memory.recurrent import StateLayer
from llama_py.memory.recurrent_cells import steps_of_one


@dataclass(slots=True)
class StateSlot:
    """Stored state of one sequence.

    pos      last position of the state, -1 if it is empty
    n_steps  number of tokens with a checkpoint; the last is the current state
    n_back   number of checkpoints that may be rolled back
    """

    pos: int = -1
    n_steps: int = 0
    n_back: int = 0


class SlotMemory(NumberedStates):
    """`cache_s_l%d` [n_embd_r + n_embd_s, size], F32: for each sequence the last inputs
    [d_conv - 1, conv_dim], then the state [S, S, H] with the value index as fast dimension.

    With n_rs_seq there are checkpoints of every slot: `per_step_conv_l%d` [(n_rs_seq + 1) *
    n_embd_r, size] and `per_step_ssm_l%d` [n_rs_seq * n_embd_s, size]. A ubatch of 2 to
    n_rs_seq + 1 tokens writes inputs and states after each token, except the last state, which is
    in the row. If devices share a layer, each has `cache_s_l%d.%d`.
    """

    def __init__(
        self, layers: Sequence[StateLayer], *, size: int, n_rs_seq: int = 0, causal: bool = True
    ) -> None:
        super().__init__(size, n_rs_seq, causal)
        self.layers = layers
        self.slots = [StateSlot() for _ in range(size)]
        self.s_l: dict[LayerKey, Tensor] = {}
        self.steps: dict[LayerKey, tuple[Tensor, Tensor]] = {}  # inputs and states
        placed: list[tuple[Device, Tensor]] = []
        for x in layers:
            n_r, n_s, name = x.state.n_embd_r, x.state.n_embd_s, key_name(x.key)
            self.s_l[x.key] = Tensor(F32, (n_r + n_s, size)).set_name(f"cache_s_l{name}")
            placed.append((x.device, self.s_l[x.key]))
            if n_rs_seq:
                conv = Tensor(F32, ((n_rs_seq + 1) * n_r, size)).set_name(f"per_step_conv_l{name}")
                ssm = Tensor(F32, (n_rs_seq * n_s, size)).set_name(f"per_step_ssm_l{name}")
                self.steps[x.key] = conv, ssm
                placed += [(x.device, conv), (x.device, ssm)]
        self.buffers = allocate("recurrent memory", "llama_memory_slots: %10s RS", placed)
        steps = mib(t for pair in self.steps.values() for t in pair)
        log.info(
            "llama_memory_slots: size = %7.2f MiB (%6d slots, %3d layers, %2d rs_seq), S (f32):"
            " %7.2f MiB, per step: %7.2f MiB",
            mib(self.all_tensors()),
            size,
            len({x.il for x in layers}),
            n_rs_seq,
            mib(self.s_l.values()),
            steps,
        )

    def all_tensors(self) -> list[Tensor]:
        """Return all tensors; each has one row per slot."""
        return [*self.s_l.values(), *(t for pair in self.steps.values() for t in pair)]

    def split(self, splitter: BatchSplitter, n_ubatch: int, sequential: bool) -> UBatch | None:
        """Return the next ubatch that a graph supports: one sequence, or one token of each."""
        return splitter.split_slots(n_ubatch, sequential, self.n_tail)

    def place(self, ubatches: list[UBatch]) -> SlotContext:
        """Return the context of ubatches; ContextError if a token is in several sequences."""
        for ubatch in ubatches:
            for ids in ubatch.seq_id:
                check_seqs(self.size, *ids)
                if len(ids) > 1:
                    raise ContextError(
                        f"a token belongs to sequences {list(ids)}, but a state in slots belongs "
                        "to one sequence; decode it for one and use seq_cp, or use another "
                        "variant"
                    )
        return SlotContext(self, ubatches)

    def init_full(self, n_seqs: int | None = None) -> SlotContext:
        return SlotContext(self, [])

    def apply_ubatch(self, ubatch: UBatch) -> None:
        """Apply the ubatch to its slots. New sequences start from zeros, not from old values times
        zero, which may be NaN."""
        self.applied = ubatch
        n = ubatch.n_seq_tokens
        pos = ubatch.pos[: ubatch.n_tokens].reshape(-1, n)
        for i, ((seq_id,), own) in enumerate(zip(ubatch.seq_id[::n], pos, strict=True)):
            slot = self.slots[seq_id]
            if slot.pos < 0:
                zero_row(self.s_l.values(), seq_id)
            kept = 1 < n <= self.n_rs_seq + 1 and self.causal
            slot.pos = int(own[-1])
            slot.n_steps = n if kept else 0
            slot.n_back = steps_of_one(pos[i]) if kept else 0

    def _entry(self, seq_id: int) -> StateSlot | None:
        slot = self.slots[seq_id]
        return slot if slot.pos >= 0 else None

    def _forget(self, seq_id: int) -> None:
        self.slots[seq_id] = StateSlot()

    def _roll_back(self, seq_id: int, back: int) -> bool:
        """Copy a checkpoint into the row (llama_kv_cache::per_step_restore); keep earlier ones."""
        slot = self.slots[seq_id]
        if back > slot.n_back:
            return False
        slot.pos -= back
        slot.n_back -= back
        slot.n_steps -= back
        for layer in self.layers:
            row, first = self.s_l[layer.key], 0
            sizes = 4 * layer.state.n_embd_r, 4 * layer.state.n_embd_s
            for t, size in zip(self.steps[layer.key], sizes, strict=True):
                step = read_part(t, seq_id * t.nb[1] + (slot.n_steps - 1) * size, size)
                write_part(row, seq_id * row.nb[1] + first, step)
                first += size
        return True

    def seq_cp(self, src: int, dst: int, p0: int = -1, p1: int = -1) -> None:
        """Copy the whole state of src to dst; position ranges are ignored."""
        check_seqs(self.size, src, dst)
        if src == dst:
            return
        self.slots[dst] = copy(self.slots[src])
        for t in self.all_tensors() if self.slots[src].pos >= 0 else ():
            write_part(t, dst * t.nb[1], read_part(t, src * t.nb[1], t.nb[1]))

    def layout(self) -> str:
        layers = layer_list(x.il for x in self.layers)
        return f"slots [{layers}] {sum(t.ne[0] for t in self.s_l.values())}"

    def _whole_rows(self) -> Iterator[Whole]:
        """Yield the parts of each layer's row, and the sizes of their sections in bytes."""
        for _, same in groupby(self.layers, lambda layer: layer.il):
            parts = list(same)
            sections = []
            for state in (x.state for x in parts):
                each = state.r_sections or (state.n_embd_r,), state.s_sections or (state.n_embd_s,)
                sections.append([4 * n for some in each for n in some])
            yield [self.s_l[x.key] for x in parts], sections

    def _write(self, io: StateWriter, seq_id: int, partial: bool) -> None:
        write_row(io, self._whole_rows(), seq_id)

    def _read(self, io: StateReader, seq_id: int, pos: int, partial: bool) -> None:
        read_row(io, self._whole_rows(), seq_id)
        self.slots[seq_id] = StateSlot(pos)


class SlotContext(StateWalk):
    """A batch's ubatches in a memory of slots."""

    keeps = "recurrent states in slots"
    mem: SlotMemory

    @property
    def is_settled(self) -> bool:
        """The graph of a first token is another."""
        ubatch = self.get_ubatch()
        return bool(ubatch.pos[: ubatch.n_tokens].min() > 0)

    def get_s_l(self, il: int) -> Tensor:
        """Return the rows of a layer's states, one per slot."""
        return self.mem.s_l[self._key(il)]

    def get_steps(self, il: int) -> tuple[Tensor, Tensor]:
        """Return the layer's checkpoints of inputs and of states."""
        return self.mem.steps[self._key(il)]
