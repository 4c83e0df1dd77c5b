"""Plan: a graph placed in memory and compiled for its devices. Runs do not build it again."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from time import perf_counter_ns
from typing import Protocol, runtime_checkable

from ggml_py.backend import Device, Program, RemoteDevice, SteppableProgram, Work, move
from ggml_py.graph import Graph
from ggml_py.machine.shield import let_through, raise_noted
from ggml_py.plan.device_threads import DeviceThreads
from ggml_py.tensor import Tensor


@dataclass(frozen=True, slots=True)
class Split:
    """Consecutive nodes that run on one device after its `inputs` are copied: (source, copy).

    steps  steps of the program: nodes, or several nodes as one step
    reported  nodes that are reported after the run
    """

    device: Device
    nodes: list[Tensor]
    inputs: list[tuple[Tensor, Tensor]]
    steps: list[Work]
    program: Program
    reported: Sequence[Tensor] = ()

    def run(self, times: list[SplitTime] | None = None) -> None:
        """Run the split; times: list that gets its duration, if given."""
        if times is not None:
            times.append(self._run_timed())
            return
        for source, copy in self.inputs:
            move(source, copy)
        self.program.run()

    def _run_timed(self) -> SplitTime:
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

    copied      tensors copied to its device, with start and end of each copy
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
class TimesTarget:
    """Destination of a plan's times; tasks reference it, so that the plan itself can be freed."""

    times: list[SplitTime] | None = None


class Plan:
    """Plan returned by `Scheduler.plan`: run it as often as its inputs change.

    watch  called with each reported node after its split has run
    times  gets the durations of splits, if set
    """

    def __init__(
        self, graph: Graph, splits: list[Split], watch: Callable[[Tensor], None] | None = None
    ) -> None:
        self.graph = graph
        self.splits = splits
        self.watch = watch
        self._wanted = TimesTarget()

    @property
    def times(self) -> list[SplitTime] | None:
        return self._wanted.times

    @times.setter
    def times(self, times: list[SplitTime] | None) -> None:
        self._wanted.times = times

    def run(self) -> None:
        """Compute every node of the graph.

        Ctrl-C ends the run between splits, or within a split if its device supports that. The plan
        can run again.
        """
        times = self._wanted.times
        for split in self.splits:
            raise_noted()
            split.run(times)
            if self.watch is not None:
                self._show(split)

    def run_in_parts(self) -> Iterator[None]:
        """Run with pauses during which the devices may run other plans.

        A device that can pause does so about as often as Python gets control.
        """
        for split in self.splits:
            if isinstance(split.program, SteppableProgram) and self._wanted.times is None:
                for source, copy in split.inputs:
                    move(source, copy)
                yield from split.program.run_in_parts()
            else:
                split.run(self._wanted.times)
                yield
            self._show(split)

    def _show(self, split: Split) -> None:
        if self.watch is not None:
            for node in split.reported:
                let_through(partial(self.watch, node))

    @property
    def n_splits(self) -> int:
        return len(self.splits)


@runtime_checkable
class Plans(Protocol):
    """Device that runs a plan together with other devices of its type."""

    def plan(self, graph: Graph, splits: list[Split]) -> Plan:
        """Return the plan of all these splits."""
        ...


class PlanInWaves(Plan):
    """Plan that runs its devices at the same time.

    waves  numbers of splits: the splits of one wave run together, each device's in order
    """

    def __init__(
        self, graph: Graph, splits: list[Split], waves: list[list[int]], threads: DeviceThreads
    ) -> None:
        super().__init__(graph, splits)
        self.threads = threads
        self.waves = waves
        self._tasks = [_split_tasks([splits[i] for i in wave], self._wanted) for wave in waves]

    def run(self) -> None:
        for started, tasks in self._tasks:
            raise_noted()
            started()
            if tasks:
                self.threads.run(tasks)

    def run_in_parts(self) -> Iterator[None]:
        self.run()
        yield


Task = Callable[[], None]


def _split_tasks(splits: list[Split], wanted: TimesTarget) -> tuple[Task, list[Task]]:
    """Return a task for devices in other processes, and one for each device in this process."""
    there = [s for s in splits if isinstance(s.device, RemoteDevice)]
    here = [s for s in splits if not isinstance(s.device, RemoteDevice)]
    devices = dict.fromkeys(split.device.name for split in here)
    tasks = [_run_in_order([s for s in here if s.device.name == name], wanted) for name in devices]
    return _run_in_order(there, wanted), tasks


def _run_in_order(splits: list[Split], wanted: TimesTarget) -> Callable[[], None]:
    def run() -> None:
        for split in splits:
            split.run(wanted.times)

    return run
