"""A plan: a graph placed in memory and compiled for its devices. Frozen; between two runs nothing
is built.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ggml_py.backend import Device, Program, Work, move
from ggml_py.crew import Crew
from ggml_py.graph import Graph
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

    def run(self) -> None:
        for source, copy in self.inputs:
            move(source, copy)
        self.program.run()


class Plan:
    """What `Scheduler.plan` returns: run it as often as its inputs change.

    watch  called with the nodes that splits tell of, each after it was computed
    """

    def __init__(
        self, graph: Graph, splits: list[Split], watch: Callable[[Tensor], None] | None = None
    ) -> None:
        self.graph = graph
        self.splits = splits
        self.watch = watch

    def run(self) -> None:
        """Compute every node. KeyboardInterrupt may be raised between nodes; the plan stays
        usable.
        """
        for split in self.splits:
            split.run()
            if self.watch is not None:
                for node in split.told:
                    self.watch(node)

    @property
    def n_splits(self) -> int:
        return len(self.splits)


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
        self._tasks = [_by_device([splits[i] for i in wave]) for wave in waves]

    def run(self) -> None:
        for tasks in self._tasks:
            self.crew.run(tasks)


def _by_device(splits: list[Split]) -> list[Callable[[], None]]:
    devices = dict.fromkeys(split.device.name for split in splits)
    return [_in_turn([s for s in splits if s.device.name == name]) for name in devices]


def _in_turn(splits: list[Split]) -> Callable[[], None]:
    def run() -> None:
        for split in splits:
            split.run()

    return run
