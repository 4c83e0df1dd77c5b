"""A plan: a graph placed in memory and compiled for its devices. Frozen; between two runs nothing
is built.
"""

from __future__ import annotations

from dataclasses import dataclass

from ggml_py.backend import Device, Program
from ggml_py.graph import Graph
from ggml_py.tensor import Tensor


@dataclass(frozen=True, slots=True)
class Split:
    """Consecutive nodes that one device runs. `inputs` are copied to it first: (source, copy)."""

    device: Device
    nodes: list[Tensor]
    inputs: list[tuple[Tensor, Tensor]]
    program: Program


class Plan:
    """What `Scheduler.plan` returns: run it as often as its inputs change."""

    def __init__(self, graph: Graph, splits: list[Split]) -> None:
        self.graph = graph
        self.splits = splits

    def run(self) -> None:
        """Compute every node. KeyboardInterrupt may be raised between nodes; the plan stays usable.
        """
        for split in self.splits:
            for source, copy in split.inputs:
                assert source.buffer is not None
                assert copy.buffer is not None
                copy.buffer.write(copy.offset, source.buffer.read(source.offset, source.nbytes))
            split.program.run()

    @property
    def n_splits(self) -> int:
        return len(self.splits)
