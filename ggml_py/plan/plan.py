"""Plan: a graph placed in memory and compiled for its devices. It is frozen: runs build nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from time import perf_counter_ns
from typing import Protocol, runtime_checkable

from ggml_py.backend import Device, Pauses, Program, RunsElsewhere, Work, move
from ggml_py.graph import Graph
from ggml_py.machine.shield import let_through, raise_noted
from ggml_py.plan.crew import Crew
from ggml_py.tensor import Tensor


@dataclass(frozen=True, slots=True)
class Split:
    """Consecutive nodes that one device runs. `inputs` are copied to it first: (source, copy).

    steps  what the program runs: nodes, or several of them as one
    told   nodes whose values are there then, and wanted
    """

    device: Device
    nodes: list[Tensor]
    inputs: list[tuple[Tensor, Tensor]]
    steps: list[Work]
    program: Program
    told: Sequence[Tensor] = ()

    def run(self, times: list[SplitTime] | None = None) -> None:
        """Run the split; times: list that gets its duration, if given."""
        if times is not None:
            times.append(self._timed())
            return
        for source, copy in self.inputs:
            move(source, copy)
        self.program.run()

    def _timed(self) -> SplitTime:
        copied = []
        for source, copy in self.inputs:
            start = perf_counter_ns()
            move(source, copy)
            copied.append((source, start, perf_counter_ns()))
        start = perf_counter_ns()
        self.program.run()
        return SplitTime(self, copied, start, perf_counter_ns())


@dataclass(frozen=True, slots=True)
class SplitTime:
    """One run of a split, in nanoseconds of `perf_counter_ns`.

    copied      what was copied to its device, with start and end of each
    start, end  of its program
    """

    split: Split
    copied: list[tuple[Tensor, int, int]]
    start: int
    end: int

    @property
    def n_bytes(self) -> int:
        return sum(t.nbytes for t, _, _ in self.copied)


@dataclass(slots=True)
class Wanted:
    """Destination of times, shared by tasks, which do not reference their plan, so that it can be
    freed."""

    times: list[SplitTime] | None = None


class Plan:
    """Plan returned by `Scheduler.plan`: run it as often as its inputs change.

    watch  called with the nodes that splits tell of, each after it was computed
    times  gets the durations of splits, if set
    """

    def __init__(
        self, graph: Graph, splits: list[Split], watch: Callable[[Tensor], None] | None = None
    ) -> None:
        self.graph = graph
        self.splits = splits
        self.watch = watch
        self._wanted = Wanted()

    @property
    def times(self) -> list[SplitTime] | None:
        return self._wanted.times

    @times.setter
    def times(self, times: list[SplitTime] | None) -> None:
        self._wanted.times = times

    def run(self) -> None:
        """Compute every node. Ctrl-C ends it between splits, or within one if its device can; the
        plan stays usable.
        """
        times = self._wanted.times
        for split in self.splits:
            raise_noted()
            split.run(times)
            self._show(split)

    def run_in_parts(self) -> Iterator[None]:
        """`run`, with pauses in which the devices may run other plans: about as often as Python
        gets control, where they can."""
        for split in self.splits:
            if isinstance(split.program, Pauses) and self._wanted.times is None:
                for source, copy in split.inputs:
                    move(source, copy)
                yield from split.program.run_in_parts()
            else:
                split.run(self._wanted.times)
                yield
            self._show(split)

    def _show(self, split: Split) -> None:
        if self.watch is not None:
            for node in split.told:
                let_through(partial(self.watch, node))

    @property
    def n_splits(self) -> int:
        return len(self.splits)


@runtime_checkable
class Plans(Protocol):
    """A device that runs a plan in a way of its own, together with others of its kind."""

    def plan(self, graph: Graph, splits: list[Split]) -> Plan:
        """Return the plan of all these splits."""
        ...


class PlanInWaves(Plan):
    """A plan whose devices run at the same time.

    waves  numbers of splits: those of one wave run together, each device's in turn
    """

    def __init__(
        self, graph: Graph, splits: list[Split], waves: list[list[int]], crew: Crew
    ) -> None:
        super().__init__(graph, splits)
        self.crew = crew
        self.waves = waves
        self._tasks = [_by_device([splits[i] for i in wave], self._wanted) for wave in waves]

    def run(self) -> None:
        for started, tasks in self._tasks:
            raise_noted()
            started()
            if tasks:
                self.crew.run(tasks)

    def run_in_parts(self) -> Iterator[None]:
        self.run()
        yield


Task = Callable[[], None]


def _by_device(splits: list[Split], wanted: Wanted) -> tuple[Task, list[Task]]:
    """Return a task for devices in other processes, and one for each device in this process."""
    there = [s for s in splits if isinstance(s.device, RunsElsewhere)]
    here = [s for s in splits if not isinstance(s.device, RunsElsewhere)]
    devices = dict.fromkeys(split.device.name for split in here)
    tasks = [_in_turn([s for s in here if s.device.name == name], wanted) for name in devices]
    return _in_turn(there, wanted), tasks


def _in_turn(splits: list[Split], wanted: Wanted) -> Callable[[], None]:
    def run() -> None:
        for split in splits:
            split.run(wanted.times)

    return run
