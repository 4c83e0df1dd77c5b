"""What a backend is (ggml-backend-impl.h): memory that tensors live in, and a way to run nodes.

A backend package exports one function named in the entry-point group `ggml_py.backends`; it takes
nothing
and returns the list of its devices. Everything else follows from the three protocols below.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from ggml_py.buffer import Buffer as Buffer
from ggml_py.buffer import Bytes as Bytes
from ggml_py.fusion import Fused, Fusions
from ggml_py.host_memory import aligned_bytes as aligned_bytes
from ggml_py.host_memory import zero
from ggml_py.tensor import Tensor, numpy_dtype
from ggml_py.uses import Uses

Work = Tensor | Fused[Any]  # what a program runs at a time


class Program(Protocol):
    """Nodes ready to run, again and again, in the order they were compiled."""

    def run(self) -> None:
        """Run every node. Returns when all results are in memory.

        A program that takes long calls `raise_noted` (ggml_py/shield.py) about every 50 ms.
        """


@runtime_checkable
class Pauses(Protocol):
    """A program that can be run in parts."""

    def run_in_parts(self) -> Iterator[None]:
        """`Program.run`, with pauses in which the device may run other programs."""


@dataclass(slots=True)
class CompileOptions:
    """How nodes are to be compiled.

    progress    called as progress(done, total, what) while kernels are being built
    fuse        whether several nodes may be run as one step (False when every node's value is
                wanted)
    many        whether the nodes are of a graph of several tokens (`TellsBatches`)
    """

    progress: Callable[[int, int, str], None] | None = None
    fuse: bool = True
    many: bool = False


@runtime_checkable
class Device(Protocol):
    """One device of a backend: allocates memory, says what it can run, and compiles nodes."""

    name: str
    description: str
    kind: str  # "cpu", "gpu", "accel" (works beside the CPU), "ref" or "null"
    alignment: int

    def memory(self) -> tuple[int, int]:
        """(free, total) bytes."""

    def alloc(self, size: int) -> Buffer:
        """New zeroed memory; AllocError if there is none."""

    def wrap(self, data: Bytes) -> Buffer | None:
        """A read-only buffer on bytes the host already has (an mmap), or None if the device must
        copy.
        """

    def why_not(self, node: Tensor) -> str:
        """ "" if this device can run the node, else the reason."""

    def can_read(self, buffer: Buffer) -> bool:
        """Whether kernels of this device can use a tensor in that buffer as it is."""

    def prepare_weight(self, weight: Tensor, uses: Sequence[str]) -> None:
        """Called once per weight after its bytes are in place, with the ops that will read it; the
        device
        may give it a layout of its own."""

    def compile(self, nodes: Sequence[Work], options: CompileOptions) -> Program:
        """Freeze nodes into a program. All their tensors are allocated. Only a device that `Fuses`
        is given steps of several nodes.
        """

    def set_threads(self, n: int) -> None:
        """Number of host threads, where that means something."""


@dataclass(frozen=True, slots=True)
class FilePart:
    """Bytes of a file: ranges of one axis of an array of bytes, one after another.

    offset, shape  of the array in it
    """

    path: Path
    offset: int
    shape: tuple[int, ...]
    axis: int
    ranges: tuple[tuple[int, int], ...]

    def of(self, data: Bytes) -> Bytes:
        """The bytes, given the file's; those that lie together are not copied."""
        n = int(np.prod(self.shape))
        return ranges_of(data[self.offset : self.offset + n], self.shape, self.axis, self.ranges)


def ranges_of(
    data: Bytes, shape: Sequence[int], axis: int, ranges: Iterable[tuple[int, int]]
) -> Bytes:
    """Ranges of one axis of an array of bytes, as bytes; those that lie together are not copied."""
    rows = data.reshape(shape)
    parts = [rows[(slice(None),) * axis + (slice(a, b),)] for a, b in ranges]
    found = parts[0] if len(parts) == 1 else np.concatenate(parts, axis)
    return np.ascontiguousarray(found).reshape(-1)


@runtime_checkable
class ReadsFiles(Protocol):
    """A device in a process that may read files for itself."""

    def from_file(self, part: FilePart) -> Buffer | None:
        """Memory with bytes of a file; None if it has not that file."""


@runtime_checkable
class RunsElsewhere(Protocol):
    """A device of another process: its programs are only started by `run`. To read its memory is to
    wait for them."""

    elsewhere: bool


CPUs = Sequence[Collection[int]]


@runtime_checkable
class TellsBatches(Protocol):
    """A device that may run graphs of several tokens on other threads than those of one."""

    def set_batch_threads(self, n: int | None) -> None:
        """Their number; None: as `set_threads` says."""

    def pin(self, cpus: CPUs, batch_cpus: CPUs | None = None) -> None:
        """Thread i may run on the CPUs cpus[i % len(cpus)] only, or on all of no `cpus`; those of
        batches on others if there are `batch_cpus`."""


class Event(Protocol):
    """A moment in what a device does."""

    def wait(self) -> object:
        """Return when the device has come that far."""


@runtime_checkable
class AsyncDevice(Protocol):
    """A device that works on while the host does something else; to read its memory is to wait for
    all that was started before.
    """

    def send(self, target: Tensor, data: Bytes, after: Event | None) -> None:
        """Copy bytes into a tensor, not before `after`. What is started next sees them."""

    def start(self, program: Program) -> Event:
        """Run a program; the event is its end."""


@runtime_checkable
class BuildsAhead(Protocol):
    """A device that can build the kernels of nodes before these have memory."""

    def build(self, nodes: Sequence[Work], options: CompileOptions) -> None:
        """Build what `compile` will need; BackendError for what does not compile."""


@runtime_checkable
class KeepsKernels(Protocol):
    """A device that compiles kernels when they are first needed, and keeps them: many at once take
    less time than one after the other.
    """

    def begin(self, types: Iterable[str]) -> None:
        """A model with weights of these types is about to be loaded: start what compiles, if it is
        likely to be needed."""

    def lacks(self, nodes: Sequence[Work]) -> Callable[[], bool]:
        """What tells, whenever it is asked, whether kernels for these, which need not have memory,
        are still to be compiled. It does not keep the nodes."""

    def provide(self, nodes: Sequence[Work], options: CompileOptions) -> None:
        """Have all kernels for these; BackendError for what does not compile."""

    def prepare_weights(self, weights: Sequence[tuple[Tensor, Sequence[str]]]) -> None:
        """Called once before `prepare_weight` with all that it will be called with: have all
        kernels for that."""


@runtime_checkable
class NotesKernels(Protocol):
    """A device that finds the kernels of many graphs again without these graphs."""

    def note(self, key: str, nodes: Sequence[Work]) -> None:
        """Store under a key, for later processes, which kernels these need."""

    def has_noted(self, key: str) -> bool:
        """Return True if kernels were noted under a key and all of them are cached."""


@runtime_checkable
class HasTarget(Protocol):
    """A device whose kernels are compiled for some kind of machine."""

    @property
    def target(self) -> str:
        """That kind, in words."""


MaskLogits = Callable[[npt.NDArray[np.float32], bytes], npt.NDArray[np.float32]]


@runtime_checkable
class MasksLogits(Protocol):
    """A device with a kernel for what a grammar lets come next."""

    def logits_mask(self) -> MaskLogits:
        """A function of logits [n] and bits, a token's each, the lowest of a byte first: a copy
        with -inf for tokens without one."""


@runtime_checkable
class LaysOut(Protocol):
    """A device that gives weights a layout of its own, and can tell before it does."""

    def layout_of(self, weight: Tensor, uses: Sequence[str]) -> tuple[str, int] | None:
        """The layout that `prepare_weight` would give a weight, and its bytes; None: it stays as it
        is."""


@runtime_checkable
class LimitsBuffers(Protocol):
    """A device whose buffers may be no larger than some part of its memory."""

    def largest(self, total: int | None = None) -> int | None:
        """Bytes of one buffer, at most; as if there were `total` bytes of memory, if given. None:
        nobody knows."""


@runtime_checkable
class Fuses(Protocol):
    """A device that can run several nodes as one step."""

    @property
    def fusions(self) -> Fusions[Any]:
        """The patterns of such nodes."""


def steps_of(device: Device, nodes: list[Tensor], uses: Uses) -> list[Work]:
    """What the device runs for these nodes, which it computes in a row: several as one, if it can.

    uses  of values in the whole graph
    """
    return device.fusions.steps(nodes, uses) if isinstance(device, Fuses) else [*nodes]


@dataclass(frozen=True, slots=True)
class KernelTime:
    """One run of one kernel for a node, from start to end in nanoseconds of the device's clock.

    threads  when each thread began it, and had done its part, where they are known
    """

    node: Tensor
    kernel: str
    start: int
    end: int
    threads: tuple[tuple[int, int], ...] = ()


@runtime_checkable
class Profiles(Protocol):
    """A device that can tell how long its kernels take."""

    def profiling(self) -> AbstractContextManager[list[KernelTime]]:
        """A context; the kernels that run in it are added to its list."""


@runtime_checkable
class Meets(Protocol):
    """A program whose threads wait for each other.

    n_barriers  how often, in one run
    """

    n_barriers: int

    def barrier_seconds(self) -> float:
        """What that takes each time, if all come at once."""
        ...


@runtime_checkable
class PassesOn(Protocol):
    """Memory of another process, which can send bytes to a third without this one."""

    def pass_on(self, offset: int, size: int, target: Buffer, at: int) -> bool:
        """Copy bytes into another buffer; False if that cannot be done there."""


def move(source: Tensor, target: Tensor) -> None:
    """Copy the bytes of a tensor into another one, which may be on another device."""
    assert target.buffer is not None, f"{target} is not allocated"
    if isinstance(source.buffer, PassesOn):
        place = source.offset, source.nbytes, target.buffer, target.offset
        if source.buffer.pass_on(*place):
            return
    target.buffer.write(target.offset, tensor_bytes(source))


def tensor_bytes(t: Tensor) -> Bytes:
    """The tensor's bytes, first to last element, copied to the host."""
    assert t.buffer is not None, f"{t} is not allocated"
    return t.buffer.read(t.offset, t.nbytes)


def set_tensor(t: Tensor, values: npt.NDArray[Any]) -> None:
    """Write values (any array whose bytes are the tensor's, dense) into a contiguous tensor."""
    assert t.buffer is not None, f"{t} is not allocated"
    raw = np.ascontiguousarray(values).view(np.uint8).reshape(-1)
    if raw.size != t.nbytes:
        raise ValueError(f"{t} has {t.nbytes} bytes; got {raw.size}")
    t.buffer.write(t.offset, raw)


def host_array(t: Tensor) -> npt.NDArray[Any] | None:
    """The values of a tensor without gaps where the host has them, to be changed there. None of one
    in another memory, and of a quantized one. -> [ne3, ne2, ne1, ne0], bf16 as uint16
    """
    dtype = numpy_dtype(t)
    if dtype is None or not isinstance(t.buffer, HostBuffer) or not t.is_contiguous():
        return None
    values: npt.NDArray[Any] = t.buffer.view(t.offset, t.nbytes).view(dtype)
    return values.reshape(t.ne[::-1])


def get_tensor(t: Tensor) -> npt.NDArray[Any]:
    """Values as a NumPy array [ne3, ne2, ne1, ne0]; bf16 as float32. For a quantized type, its raw
    bytes.
    """
    return tensor_bytes(t) if numpy_dtype(t) is None else t.numpy()


@dataclass(slots=True)
class HostBuffer:
    """Plain host memory as a Buffer; `base` is the address of its first byte."""

    data: Bytes
    is_host: bool = True
    size: int = field(init=False)
    base: int = field(init=False)

    def __post_init__(self) -> None:
        self.size = self.data.size
        self.base = int(self.data.__array_interface__["data"][0])

    def write(self, offset: int, data: Bytes) -> None:
        self.data[offset : offset + data.size] = data

    def read(self, offset: int, size: int) -> Bytes:
        return self.data[offset : offset + size].copy()

    def view(self, offset: int, size: int) -> Bytes:
        """The bytes themselves, not a copy."""
        return self.data[offset : offset + size]

    def clear(self, value: int = 0) -> None:
        if value:
            self.data[:] = value
        else:
            zero(self.data)
