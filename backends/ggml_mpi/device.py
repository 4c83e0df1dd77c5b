"""A device of another rank, as rank 0 sees it: memory there, and programs that are run there."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Sequence
from itertools import count
from typing import Any

import numpy as np

from ggml_mpi import orders
from ggml_mpi.files import sample_digest
from ggml_mpi.kept import LEAST
from ggml_mpi.kept import full_digest as digest_of_all
from ggml_mpi.wire import RankMemory, leaf_to_send, steps_to_send
from ggml_mpi.world import World
from ggml_py.backend import (
    Buffer,
    Bytes,
    CompileOptions,
    CPUs,
    Device,
    FilePart,
    Fuses,
    NotesKernels,
    SupportsKernelCache,
    SupportsRepacking,
    Work,
)
from ggml_py.fusion import Fusions
from ggml_py.graph import Graph
from ggml_py.plan import Plan, Split
from ggml_py.plan.collective import AllReduce
from ggml_py.tensor import Tensor

MakePlan = Callable[[Graph, list[Split]], Plan]

SMALL = 4096  # maximum bytes sent within their order

handles = count(1)


class RankBuffer(RankMemory):
    """Memory of another rank."""

    is_host = False

    def __init__(self, world: World, rank: int, size: int, handle: int = 0) -> None:
        """handle: of memory that already exists"""
        super().__init__(rank, handle or next(handles))
        self.world, self.size = world, size
        if not handle:
            world.ask(rank, orders.Alloc(handle=self.handle, size=size))
        end = weakref.finalize(self, world.tell, rank, orders.Free(handle=self.handle))
        end.atexit = False  # the end of the process frees all memory

    def write(self, offset: int, data: Bytes) -> None:
        what: dict[str, Any] = {"buffer": self, "offset": offset, "size": data.size}
        if data.size <= SMALL:
            self.world.tell(self.rank, orders.Write(**what, data=data.tobytes()))
        else:
            self.world.tell(self.rank, orders.Write(**what), np.ascontiguousarray(data))

    def read(self, offset: int, size: int) -> Bytes:
        found: Bytes = self.world.ask(self.rank, orders.Read(buffer=self, offset=offset, size=size))
        return found

    def clear(self, value: int = 0) -> None:
        self.world.tell(self.rank, orders.Clear(buffer=self, value=value))

    def copy_to_peer(self, offset: int, size: int, target: Buffer, at: int) -> bool:
        """Send bytes straight to another rank; see ggml_py.backend.PeerCopyBuffer."""
        if not isinstance(target, RankBuffer) or target.rank == self.rank:
            return False
        with self.world.atomic():
            self.world.tell(
                self.rank, orders.Send(buffer=self, offset=offset, size=size, to=target.rank)
            )
            self.world.tell(
                target.rank, orders.Receive(buffer=target, offset=at, size=size, source=self.rank)
            )
        return True


class RankProgram:
    """A program that another rank compiled. `run` sends an order; readers of results wait."""

    def __init__(self, world: World, rank: int, handle: int) -> None:
        self.rank, self.handle = rank, handle
        self._run = world.tell, rank, orders.RunProgram(handle=handle)
        end = weakref.finalize(self, world.tell, rank, orders.Drop(handle=handle))
        end.atexit = False

    def run(self) -> None:
        tell, rank, order = self._run
        tell(rank, order)


class RankDevice:
    """The CPU of another rank, of the same type as this CPU, which answers for it."""

    kind = "accel"
    elsewhere = True

    def __init__(
        self, world: World, rank: int, like: Device, all_reduce: AllReduce, plan: MakePlan
    ) -> None:
        """Keep the parts; all_reduce: see plan.collective.KnowsOthers, plan: see plan.Plans."""
        self.name = f"mpi{rank}"
        self.world, self.rank, self.like = world, rank, like
        self.all_reduce, self.plan = all_reduce, plan
        self.alignment = like.alignment
        self.repack = True
        self.about = world.ask(rank, orders.DescribeRank())

    @property
    def description(self) -> str:
        return f"rank {self.rank} on {self.about.host}: {self.about.description}"

    def memory(self) -> tuple[int, int]:
        free, total = self.world.ask(self.rank, orders.FreeMemory())
        return free, total

    def alloc(self, size: int) -> Buffer:
        return RankBuffer(self.world, self.rank, size)

    def wrap(self, data: Bytes) -> Buffer | None:
        return None

    def from_file(self, part: FilePart) -> Buffer | None:
        """Return a buffer with a part of a file that the rank reads (backend.ReadsFiles)."""
        handle = next(handles)
        size, digest = part.path.stat().st_size, sample_digest(part)
        order = orders.Map(handle=handle, part=part, size=size, digest=digest)
        size = self.world.ask(self.rank, order) or self._send_bytes(handle, part)
        return RankBuffer(self.world, self.rank, size, handle) if size else None

    def _send_bytes(self, handle: int, part: FilePart) -> int:
        """Send bytes of a file unless the rank has them; return their number, 0 for few."""
        data = part.extract(np.memmap(part.path, np.uint8, "r"))
        if data.size < LEAST:
            return 0
        what: dict[str, Any] = {"handle": handle, "size": data.size, "digest": digest_of_all(data)}
        if not self.world.ask(self.rank, orders.Find(**what)):
            self.world.tell(self.rank, orders.StoreBytes(**what), data)
        return data.size

    def why_not(self, node: Tensor) -> str:
        return self.like.why_not(node)

    def can_read(self, buffer: Buffer) -> bool:
        return isinstance(buffer, RankBuffer) and buffer.rank == self.rank

    @property
    def fusions(self) -> Fusions[Any]:
        return self.like.fusions if isinstance(self.like, Fuses) else Fusions()

    def begin(self, types: Iterable[str]) -> None:
        self.world.tell(self.rank, orders.Begin(types=sorted(types)))

    def lacks(self, nodes: Sequence[Work]) -> bool:
        return isinstance(self.like, SupportsKernelCache) and self.like.lacks(nodes)

    def note(self, key: str, nodes: Sequence[Work]) -> None:
        if isinstance(self.like, NotesKernels):
            self.like.note(key, nodes)

    def has_noted(self, key: str) -> bool:
        return not isinstance(self.like, NotesKernels) or self.like.has_noted(key)

    def provide(self, nodes: Sequence[Work], options: CompileOptions) -> None:
        steps = steps_to_send(nodes, self.fusions)
        self.world.tell(self.rank, orders.Provide(steps=steps, many=options.many))

    def prepare_weights(self, weights: Sequence[tuple[Tensor, Sequence[str]]]) -> None:
        if self.repack:
            pairs = [(leaf_to_send(t), tuple(uses)) for t, uses in weights]
            self.world.tell(self.rank, orders.PrepareAll(weights=pairs))

    def prepare_weight(self, weight: Tensor, uses: Sequence[str]) -> None:
        if not self.repack:
            return
        handle, copy = next(handles), leaf_to_send(weight)
        weight.layout, size = self.world.ask(
            self.rank, orders.Prepare(weight=copy, uses=tuple(uses), handle=handle, repack=True)
        )
        if size:
            weight.buffer, weight.offset = RankBuffer(self.world, self.rank, size, handle), 0

    def repacked_layout(self, weight: Tensor, uses: Sequence[str]) -> tuple[str, int] | None:
        if self.repack and isinstance(self.like, SupportsRepacking):
            return self.like.repacked_layout(weight, uses)
        return None

    def compile(self, nodes: Sequence[Work], options: CompileOptions) -> RankProgram:
        handle, steps = next(handles), steps_to_send(nodes, self.fusions)
        order = orders.Compile(handle=handle, steps=steps, many=options.many)
        self.world.tell(self.rank, order)
        return RankProgram(self.world, self.rank, handle)

    def set_threads(self, n: int) -> None:
        self.world.tell(self.rank, orders.Threads(n=n))

    def set_batch_threads(self, n: int | None) -> None:
        """Set the threads for batches in the rank; see ggml_py.backend.SupportsBatchThreads."""
        self.world.tell(self.rank, orders.Threads(n=0, n_batch=n, batch=True))

    def pin(self, cpus: CPUs, batch_cpus: CPUs | None = None) -> None:
        """Ignore the CPUs, which are of rank 0's machine: a launcher places other ranks."""
