"""A plan over ranks: each rank stores its commands, so a run is one message per rank."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

from ggml_mpi import orders
from ggml_mpi.all_reduce import RankMeeting
from ggml_mpi.device import RankBuffer, RankProgram, handles
from ggml_mpi.exchange import Exchange, StaggeredExchange, catch_failure
from ggml_mpi.order import Order
from ggml_mpi.pieces import SumPieces, in_pieces
from ggml_mpi.script import Forget, Keep, Play, Put
from ggml_mpi.world import World
from ggml_py.backend import Buffer, Program, move, tensor_bytes
from ggml_py.errors import BackendError
from ggml_py.graph import Graph
from ggml_py.plan import Plan, Split
from ggml_py.plan.assign import is_view
from ggml_py.plan.waves import written_tensors
from ggml_py.tensor import Tensor

WITH_RUN = 2**14  # maximum bytes of an input sent in a run's message

Step = Callable[[], None]


class RankPlan(Plan):
    """Plan over several ranks; each rank runs its part in order.

    Ranks synchronize only to transfer data. Ctrl-C takes effect after the run, since other ranks
    wait for rank 0.
    """

    def __init__(self, world: World, graph: Graph, splits: list[Split]) -> None:
        super().__init__(graph, splits)
        self.world = world
        self.parts = _Parts(world, splits)
        self.handles = {rank: next(handles) for rank in self.parts.orders}
        for rank, handle in self.handles.items():
            world.tell(rank, Keep(handle=handle, orders=self.parts.orders[rank]))
            end = weakref.finalize(self, world.tell, rank, Forget(handle=handle))
            end.atexit = False

    def run(self) -> None:
        if self.times is not None:  # splits run sequentially
            super().run()
            return
        with self.world.atomic():
            try:
                problem = self._run_all()
            except BaseException as e:  # other ranks wait for the missing data
                self.world.give_up(e if isinstance(e, Exception) else BackendError(repr(e)))
        if problem is not None:
            self.world.settle(self.world.add_rank_name(problem))
        self.world.check()

    def run_in_parts(self) -> Iterator[None]:
        self.run()
        yield

    def _run_all(self) -> Exception | None:
        """Run rank 0's steps; return its failure if other ranks only notice it later."""
        problem: Exception | None = None
        given = {rank: _tensors_bytes(tensors) for rank, tensors in self.parts.given.items()}
        for rank, handle in self.handles.items():
            self.world.tell(rank, Play(handle=handle, given=given[rank]))
        for step, meets in self.parts.here:
            if meets:
                step()
                continue
            found = catch_failure(step)
            if found is not None:
                problem, self.world.failed = problem or found, True
        return problem


def _tensors_bytes(tensors: Sequence[Tensor]) -> bytes:
    return b"".join(tensor_bytes(t).tobytes() for t in tensors)


class _Parts:
    """The parts of a plan by rank.

    orders  commands by rank
    given   tensors by rank; each run's message contains their bytes
    here    steps of this rank, each with True if another rank takes part
    """

    def __init__(self, world: World, splits: Sequence[Split]) -> None:
        self.world = world
        self.orders: dict[int, list[Order]] = {}
        self.given: dict[int, list[Tensor]] = {}
        self._n_given: dict[int, int] = {}
        self.here: list[tuple[Step, bool]] = []
        nodes = (t for split in splits for t in split.nodes if not is_view(t))
        self._made = {id(t.root) for node in nodes for t in written_tensors(node)}
        self._pieces = in_pieces(world, splits)
        heads = {i: pieces.head for sums in self._pieces.values() for i, pieces in sums.values()}
        for i, split in enumerate(splits):
            for source, copy in split.inputs:
                self._bring(source, copy)
            if i in self._pieces and isinstance(split.program, RankMeeting):
                self._stagger(split.program, {r: p for r, (_, p) in self._pieces[i].items()})
            else:
                self._run(heads.get(i, split.program))

    def _add_order(self, rank: int, order: Order) -> None:
        self.orders.setdefault(rank, []).append(order)
        self.given.setdefault(rank, [])

    def _stagger(self, meeting: RankMeeting, pieces: Mapping[int, SumPieces]) -> None:
        for one in meeting.there:
            order = orders.Stagger(handle=one.handle, pieces=pieces[one.rank].numbers)
            self._add_order(one.rank, order)
        if isinstance(meeting.here, Exchange):  # sends all pieces despite failures
            self.here.append((StaggeredExchange(meeting.here, pieces[0].each).run, False))

    def _run(self, program: Program) -> None:
        if isinstance(program, RankMeeting):
            for one in program.there:
                self._add_order(one.rank, orders.Join(handle=one.handle))
            if program.here is not None:
                self.here.append((program.here.run, True))
        elif isinstance(program, RankProgram):
            self._add_order(program.rank, orders.RunProgram(handle=program.handle))
        else:
            self.here.append((program.run, False))

    def _bring(self, source: Tensor, copy: Tensor) -> None:
        a, b, size = source.buffer, copy.buffer, source.nbytes
        assert a is not None and b is not None, f"{source} or its copy is not allocated"
        from_, to = _rank(a), _rank(b)
        if not size:
            return
        if from_ == to == 0:
            self.here.append((partial(move, source, copy), False))
        elif from_ == to:
            order = orders.Copy(buffer=a, offset=source.offset, size=size, to=b, at=copy.offset)
            self._add_order(to, order)
        elif from_ == 0 and size <= WITH_RUN and id(source.root) not in self._made:
            start = self._n_given.get(to, 0)
            self._n_given[to] = start + size
            self._add_order(to, Put(start=start, buffer=b, offset=copy.offset, size=size))
            self.given[to].append(source)
        else:
            self._pass(source, from_, copy, to)

    def _pass(self, source: Tensor, from_: int, copy: Tensor, to: int) -> None:
        """Add the transfer of a tensor between two ranks during the run."""
        size, world = source.nbytes, self.world
        if from_:
            self._add_order(
                from_, orders.Send(buffer=_buffer(source), offset=source.offset, size=size, to=to)
            )
        else:
            self.here.append((partial(give, world, to, source), True))
        if to:
            self._add_order(
                to,
                orders.Receive(buffer=_buffer(copy), offset=copy.offset, size=size, source=from_),
            )
        else:
            into = _buffer(copy), copy.offset, size
            self.here.append((partial(orders.take, world, from_, *into), True))


def give(world: World, to: int, source: Tensor) -> None:
    """Send a tensor from this rank to rank `to`."""
    world.send(to, tensor_bytes(source))


def _rank(buffer: Buffer) -> int:
    return buffer.rank if isinstance(buffer, RankBuffer) else 0


def _buffer(t: Tensor) -> Buffer:
    assert t.buffer is not None
    return t.buffer
