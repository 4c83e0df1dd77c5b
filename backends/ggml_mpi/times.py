"""Times of ranks in the runs of `script.py`, each by the rank's own clock.

During a measurement, orders that record their begin and end replace each rank's orders. At other
times the clock is not read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from time import perf_counter_ns
from typing import Any

from ggml_mpi import orders
from ggml_mpi.exchange import Exchange, StaggeredExchange
from ggml_mpi.order import Order
from ggml_mpi.plan import RankPlan, give
from ggml_mpi.world import World
from ggml_py.backend import KernelTime, Profiles
from ggml_py.tensor import Shape

ROUNDS = 20  # requests to measure a clock's offset; the fastest counts


@dataclass(frozen=True, slots=True)
class Message:
    """Bytes that passed between ranks, in nanoseconds of the rank that recorded it.

    kind    "send", "receive", "sum", or "pieces": a sum sent while its parts are computed
    others  the other ranks of the message
    n       messages that this rank sent for it, n_bytes in total
    start   for a sum in pieces, when the last was computed: later time is not hidden
    """

    kind: str
    others: tuple[int, ...]
    n: int
    n_bytes: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Ran:
    """A run of a kernel, with the name, op and shape of its node."""

    name: str
    op: str
    ne: Shape
    kernel: str
    start: int
    end: int
    threads: tuple[tuple[int, int], ...]


@dataclass(slots=True)
class RankTimes:
    """Times of one rank. n, n_bytes: messages that it has sent.

    ahead  nanoseconds that its clock is ahead of rank 0's
    """

    messages: list[Message] = field(default_factory=list)
    kernels: list[Ran] = field(default_factory=list)
    n: int = 0
    n_bytes: int = 0
    ahead: int = 0


class _Recorder:
    """Records the times of the rank that it is in."""

    def __init__(self, world: World) -> None:
        self.world, self.times, self.stack = world, RankTimes(), ExitStack()
        self.kernels: list[KernelTime] = []
        self.mark()

    def mark(self) -> None:
        """Count messages from here."""
        self.before = self.world.sent.n, self.world.sent.n_bytes

    def count_messages(self) -> RankTimes:
        self.times.n = self.world.sent.n - self.before[0]
        self.times.n_bytes = self.world.sent.n_bytes - self.before[1]
        return self.times

    def record_transfer(
        self, step: Callable[[], object], kind: str, others: Sequence[int], n: int, n_bytes: int
    ) -> None:
        start = perf_counter_ns()
        step()
        found = Message(kind, tuple(others), n, n_bytes, start, perf_counter_ns())
        self.times.messages.append(found)

    def record_sum(self, exchange: Exchange) -> None:
        self.record_transfer(exchange.run, "sum", *_size(exchange))

    def record_pieces(self, staggered: StaggeredExchange) -> None:
        starts: list[int] = []
        staggered.run(lambda: starts.append(perf_counter_ns()))
        others, n, n_bytes = _size(staggered.exchange)
        n *= len(staggered.pieces)
        found = Message("pieces", tuple(others), n, n_bytes, starts[0], perf_counter_ns())
        self.times.messages.append(found)


def _size(exchange: Exchange) -> tuple[list[int], int, int]:
    """Return the other ranks, messages that are sent, if it is whole, and bytes."""
    others = sorted({*exchange.to, *(rank for rank, _ in exchange.coming)})
    n_bytes = len(exchange.to) * sum(own.size for own in exchange.own)
    return others, len(exchange.to) * len(exchange.own), n_bytes


_RECORDERS: list[_Recorder] = []  # one recorder during a measurement


@dataclass(frozen=True, kw_only=True)
class TimedOrder(Order):
    """Order that records its times when it runs."""

    order: Order

    @property
    def meets(self) -> bool:  # type: ignore[override]
        return self.order.meets

    def obey(self, here: Any) -> None:
        own, order = _RECORDERS[-1], self.order
        step = partial(order.obey, here)
        if isinstance(order, orders.Send):
            own.record_transfer(step, "send", [order.to], 1, order.size)
        elif isinstance(order, orders.Receive):
            own.record_transfer(step, "receive", [order.source], 0, 0)
        elif isinstance(order, orders.Join):
            program = here.programs[order.handle]
            own.record_sum(program) if isinstance(program, Exchange) else step()
        elif isinstance(order, orders.Stagger):
            own.record_pieces(order.build_exchange(here))
        else:
            step()


@dataclass(frozen=True, kw_only=True)
class Clock(Order):
    def obey(self, here: Any) -> int:
        return perf_counter_ns()


@dataclass(frozen=True, kw_only=True)
class StartTimes(Order):
    """Note times from now on."""

    def obey(self, here: Any) -> None:
        own = _Recorder(here.world)
        _RECORDERS.append(own)
        if isinstance(here.device, Profiles):
            own.kernels = own.stack.enter_context(here.device.profiling())
        for handle, kept in here.scripts.items():
            here.scripts[handle] = [TimedOrder(order=order) for order in kept]


@dataclass(frozen=True, kw_only=True)
class Mark(Order):
    """Count messages from now on, without the earlier answers, which belong to no run."""

    def obey(self, here: Any) -> None:
        _RECORDERS[-1].mark()


@dataclass(frozen=True, kw_only=True)
class Stop(Order):
    """Order to stop recording, with the record as its answer."""

    def obey(self, here: Any) -> RankTimes:
        own = _RECORDERS.pop()
        own.stack.close()
        for handle, kept in here.scripts.items():
            here.scripts[handle] = [o.order if isinstance(o, TimedOrder) else o for o in kept]
        times = own.count_messages()
        times.kernels = [_ran(t) for t in own.kernels]
        return times


def _ran(t: KernelTime) -> Ran:
    node = t.node
    return Ran(node.name, node.op, node.ne, t.kernel, t.start, t.end, t.threads)


@contextmanager
def record_times(world: World, plans: Sequence[RankPlan]) -> Iterator[list[RankTimes]]:
    """Yield a list for the times of these plans' runs, by rank, without rank 0's kernels."""
    found: list[RankTimes] = []
    own = _Recorder(world)
    before = [plan.parts.here for plan in plans]
    others = range(1, world.size)
    ahead = [0, *(_clock_offset(world, rank) for rank in others)]
    for rank in others:
        world.ask(rank, StartTimes())
        world.tell(rank, Mark())
    for plan in plans:
        plan.parts.here = [(_record_step(own, step), meets) for step, meets in plan.parts.here]
    own.mark()
    try:
        yield found
    finally:
        own.count_messages()
        for plan, here in zip(plans, before, strict=True):
            plan.parts.here = here
        found += [own.times, *(world.ask(rank, Stop()) for rank in others)]
        for times, n in zip(found, ahead, strict=True):
            times.ahead = n


def _record_step(own: _Recorder, step: Callable[[], None]) -> Callable[[], None]:
    """Return a step of rank 0 that is noted, if it is about messages."""
    exchange = getattr(step, "__self__", None)
    if isinstance(exchange, Exchange):
        return partial(own.record_sum, exchange)
    if isinstance(exchange, StaggeredExchange):
        return partial(own.record_pieces, exchange)
    if isinstance(step, partial) and step.func is give:
        _, to, source = step.args
        return partial(own.record_transfer, step, "send", [to], 1, source.nbytes)
    if isinstance(step, partial) and step.func is orders.take:
        return partial(own.record_transfer, step, "receive", [step.args[1]], 0, 0)
    return step


def _clock_offset(world: World, rank: int) -> int:
    """Return nanoseconds that another clock is ahead, from the fastest answer."""
    best, found = -1, 0
    for _ in range(ROUNDS):
        start = perf_counter_ns()
        there: int = world.ask(rank, Clock())
        end = perf_counter_ns()
        if best < 0 or end - start < best:
            best, found = end - start, there - (start + end) // 2
    return found


def waits(times: Sequence[RankTimes]) -> list[list[int]]:
    """Return nanoseconds that each rank's messages waited for the other ranks. A received message,
    or sum, pairs with the sent message of the same number."""
    begun: dict[tuple[Any, ...], list[int]] = {}
    for rank, own in enumerate(times):
        for m in own.messages:
            if m.kind != "receive":
                begun.setdefault(_key(rank, m), []).append(m.start - own.ahead)
    return [_rank_waits(rank, own, begun) for rank, own in enumerate(times)]


def _rank_waits(rank: int, own: RankTimes, begun: dict[tuple[Any, ...], list[int]]) -> list[int]:
    seen: dict[tuple[Any, ...], int] = {}
    found = []
    for m in own.messages:
        number = seen[_key(rank, m)] = seen.get(_key(rank, m), -1) + 1
        theirs = [begun.get(key, ()) for key in _keys_of_others(rank, m)]
        starts = [of[number] + own.ahead for of in theirs if number < len(of)]
        found.append(min(max(0, max(starts, default=m.start) - m.start), m.end - m.start))
    return found


def _key(rank: int, m: Message) -> tuple[Any, ...]:
    return rank, m.kind, m.others


def _keys_of_others(rank: int, m: Message) -> list[tuple[Any, ...]]:
    """Return keys of the same message in other ranks' records; empty for a sent message."""
    if m.kind == "receive":
        return [(m.others[0], "send", (rank,))]
    if m.kind in ("sum", "pieces"):
        all_ranks = {rank, *m.others}
        return [(other, m.kind, tuple(sorted(all_ranks - {other}))) for other in m.others]
    return []
