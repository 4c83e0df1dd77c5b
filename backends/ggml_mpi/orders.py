"""Orders from rank 0 to another rank, which runs `obey`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from ggml_mpi.about import about
from ggml_mpi.exchange import Exchange, Meetings, StaggeredExchange
from ggml_mpi.files import Files
from ggml_mpi.kept import KeptWeights
from ggml_mpi.order import Order
from ggml_mpi.wire import Steps, steps_to_run
from ggml_mpi.world import World
from ggml_py.backend import (
    Buffer,
    Bytes,
    CompileOptions,
    FilePart,
    HostBuffer,
    Program,
    SupportsBatchThreads,
    SupportsKernelCache,
)
from ggml_py.tensor import Tensor


class RankState(Protocol):
    """The rank that obeys: its device, and the buffers and programs that rank 0 has numbers for."""

    world: World
    device: Any
    buffers: dict[int, Buffer]
    programs: dict[int, Program]
    scripts: dict[int, Sequence[Order]]
    meetings: Meetings
    files: Files
    kept: KeptWeights


@dataclass(frozen=True, kw_only=True)
class DescribeRank(Order):
    """Order to describe the rank's machine: see `about.RankAbout`."""

    def obey(self, here: RankState) -> Any:
        return about(here.device)


@dataclass(frozen=True, kw_only=True)
class FreeMemory(Order):
    def obey(self, here: RankState) -> Any:
        return here.device.memory()


@dataclass(frozen=True, kw_only=True)
class Threads(Order):
    n: int
    n_batch: int | None = None
    batch: bool = False

    def obey(self, here: RankState) -> None:
        if not self.batch:
            here.device.set_threads(self.n)
        elif isinstance(here.device, SupportsBatchThreads):
            here.device.set_batch_threads(self.n_batch)


@dataclass(frozen=True, kw_only=True)
class Alloc(Order):
    handle: int
    size: int

    def obey(self, here: RankState) -> None:
        here.buffers[self.handle] = here.device.alloc(self.size)


@dataclass(frozen=True, kw_only=True)
class ReportHeld(Order):
    """Bytes of all buffers that rank 0 knows."""

    def obey(self, here: RankState) -> int:
        return sum(buffer.size for buffer in here.buffers.values())


@dataclass(frozen=True, kw_only=True)
class Free(Order):
    handle: int

    def obey(self, here: RankState) -> None:
        here.buffers.pop(self.handle, None)


@dataclass(frozen=True, kw_only=True)
class Map(Order):
    """Use bytes of a file for a buffer. The answer is its size, or 0 if the file is missing.

    size, digest   of the file, see `files.sample_digest`
    """

    handle: int
    part: FilePart
    size: int
    digest: str

    def obey(self, here: RankState) -> int:
        data = here.files.read(self.part, self.size, self.digest)
        if data is None:
            return 0
        here.buffers[self.handle] = make_buffer(here, data)
        return data.size


@dataclass(frozen=True, kw_only=True)
class Find(Order):
    """Use previously received bytes for a buffer, whose number is the handle. The answer is
    True if the rank has these bytes."""

    handle: int
    size: int
    digest: str

    def obey(self, here: RankState) -> bool:
        data = here.kept.find(self.digest, self.size)
        if data is None:
            return False
        here.buffers[self.handle] = make_buffer(here, data)
        return True


@dataclass(frozen=True, kw_only=True)
class StoreBytes(Order):
    """Take the bytes that follow for a buffer, and keep them for `Find`."""

    handle: int
    size: int
    digest: str

    def obey(self, here: RankState) -> None:
        data = np.empty(self.size, np.uint8)
        here.world.receive(0, data)
        here.buffers[self.handle] = make_buffer(here, here.kept.keep(self.digest, data))


def make_buffer(here: RankState, data: Bytes) -> Buffer:
    """Return a buffer of bytes that do not change."""
    buffer: Buffer | None = here.device.wrap(data)
    if buffer is None:
        buffer = here.device.alloc(data.size)
        buffer.write(0, data)
    return buffer


@dataclass(frozen=True, kw_only=True)
class Write(Order):
    """The bytes follow, unless they are few."""

    buffer: Buffer
    offset: int
    size: int
    data: bytes = b""

    def obey(self, here: RankState) -> None:
        data = np.frombuffer(self.data, np.uint8)
        if not self.data:
            data = np.empty(self.size, np.uint8)
            here.world.receive(0, data)
        self.buffer.write(self.offset, data)


@dataclass(frozen=True, kw_only=True)
class Read(Order):
    buffer: Buffer
    offset: int
    size: int

    def obey(self, here: RankState) -> Any:
        return self.buffer.read(self.offset, self.size)


@dataclass(frozen=True, kw_only=True)
class Clear(Order):
    buffer: Buffer
    value: int

    def obey(self, here: RankState) -> None:
        self.buffer.clear(self.value)


@dataclass(frozen=True, kw_only=True)
class Send(Order):
    """Order to send bytes to another rank, which has the order to receive."""

    meets = True
    buffer: Buffer
    offset: int
    size: int
    to: int

    def obey(self, here: RankState) -> None:
        here.world.send(self.to, self.buffer.read(self.offset, self.size))


@dataclass(frozen=True, kw_only=True)
class Receive(Order):
    """Order to receive bytes that another rank has the order to send."""

    meets = True
    buffer: Buffer
    offset: int
    size: int
    source: int

    def obey(self, here: RankState) -> None:
        take(here.world, self.source, self.buffer, self.offset, self.size)


def take(world: World, source: int, buffer: Buffer, offset: int, size: int) -> None:
    """Receive bytes from another rank into memory."""
    if isinstance(buffer, HostBuffer):
        world.receive(source, buffer.view(offset, size))
        return
    data = np.empty(size, np.uint8)
    world.receive(source, data)
    buffer.write(offset, data)


@dataclass(frozen=True, kw_only=True)
class Copy(Order):
    """Order to copy bytes within a rank."""

    buffer: Buffer
    offset: int
    size: int
    to: Buffer
    at: int

    def obey(self, here: RankState) -> None:
        self.to.write(self.at, self.buffer.read(self.offset, self.size))


@dataclass(frozen=True, kw_only=True)
class Begin(Order):
    """Order to begin compiling kernels: see SupportsKernelCache.begin."""

    types: Sequence[str]

    def obey(self, here: RankState) -> None:
        if isinstance(here.device, SupportsKernelCache):
            here.device.begin(self.types)


@dataclass(frozen=True, kw_only=True)
class Provide(Order):
    """Order to provide the kernels of steps: see SupportsKernelCache.provide."""

    steps: Steps
    many: bool

    def obey(self, here: RankState) -> None:
        if isinstance(here.device, SupportsKernelCache):
            steps = steps_to_run(self.steps, here.device)
            here.device.provide(steps, CompileOptions(many=self.many))


@dataclass(frozen=True, kw_only=True)
class PrepareAll(Order):
    """See SupportsKernelCache.prepare_weights: of weights with the ops that read them."""

    weights: Sequence[tuple[Tensor, Sequence[str]]]

    def obey(self, here: RankState) -> None:
        if isinstance(here.device, SupportsKernelCache):
            here.device.prepare_weights(self.weights)


@dataclass(frozen=True, kw_only=True)
class Prepare(Order):
    """Repack a weight. The answer is its layout, and the size of its new memory, which gets the
    handle; 0: the memory is unchanged."""

    weight: Tensor
    uses: Sequence[str]
    handle: int
    repack: bool

    def obey(self, here: RankState) -> tuple[str, int]:
        before, device = self.weight.buffer, here.device
        device.repack = self.repack
        device.prepare_weight(self.weight, self.uses)
        buffer = self.weight.buffer
        if buffer is None or buffer is before:
            return self.weight.layout, 0
        here.buffers[self.handle] = buffer
        return self.weight.layout, buffer.size


@dataclass(frozen=True, kw_only=True)
class Compile(Order):
    """Freeze steps into a program."""

    meets = True
    handle: int
    steps: Steps
    many: bool

    def obey(self, here: RankState) -> None:
        steps = steps_to_run(self.steps, here.device)
        here.programs[self.handle] = here.device.compile(steps, CompileOptions(many=self.many))


@dataclass(frozen=True, kw_only=True)
class Meet(Order):
    """Create a program that exchanges a part with other ranks' parts. See exchange.Exchange."""

    meets = True
    handle: int
    part: Tensor
    position: int
    ranks: Sequence[int | None]
    receivers: Sequence[int]

    def obey(self, here: RankState) -> None:
        here.programs[self.handle] = here.meetings.exchange(
            {self.position: self.part}, self.ranks, self.receivers
        )


@dataclass(frozen=True, kw_only=True)
class RunProgram(Order):
    handle: int

    def obey(self, here: RankState) -> None:
        here.programs[self.handle].run()


@dataclass(frozen=True, kw_only=True)
class Join(RunProgram):
    """Run the program created by `Meet`."""

    meets = True


@dataclass(frozen=True, kw_only=True)
class Stagger(Order):
    """Run the program of `Meet` and the matmul before it, piece by piece: see exchange.py.

    pieces  handle of each piece's program, and the end of its bytes
    """

    handle: int
    pieces: Sequence[tuple[int, int]]

    def obey(self, here: RankState) -> None:
        self.build_exchange(here).run()

    def build_exchange(self, here: RankState) -> StaggeredExchange:
        pieces = [(here.programs[handle], end) for handle, end in self.pieces]
        exchange = here.programs[self.handle]
        assert isinstance(exchange, Exchange)
        return StaggeredExchange(exchange, pieces)


@dataclass(frozen=True, kw_only=True)
class Blank(Order):
    """A request for `size` bytes, to measure the transfer time."""

    size: int

    def obey(self, here: RankState) -> bytes:
        return bytes(self.size)


@dataclass(frozen=True, kw_only=True)
class ReportSent(Order):
    """Return the number of messages and bytes that this rank has sent."""

    def obey(self, here: RankState) -> tuple[int, int]:
        return here.world.sent.n, here.world.sent.n_bytes


@dataclass(frozen=True, kw_only=True)
class Drop(Order):
    handle: int

    def obey(self, here: RankState) -> None:
        here.programs.pop(self.handle, None)
