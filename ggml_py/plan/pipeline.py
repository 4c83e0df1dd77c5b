"""Pipeline of several graphs in flight on several devices, with separate copies of inputs and of
data passed between devices (ggml-backend.cpp:ggml_backend_sched_compute_splits with `parallel`).
"""

from __future__ import annotations

from collections.abc import Iterator

from ggml_py.backend import AsyncDevice, Event, tensor_bytes
from ggml_py.graph import Graph
from ggml_py.plan.plan import Plan, Split

MAX_COPIES = 4  # GGML_SCHED_MAX_COPIES


class GraphPipeline:
    """Starts splits without waiting for their end.

    While a device runs its part of one graph, the device before it can run the next graph. Copies
    with the same number share memory, so their readers must have run before the next copies are
    sent.
    """

    def __init__(self) -> None:
        self._next = 0
        self._done: dict[tuple[str, int], Event] = {}

    def next_copy(self) -> int:
        """Return the number of the next graph's copies."""
        number, self._next = self._next, (self._next + 1) % MAX_COPIES
        return number

    def start(self, split: Split, number: int) -> None:
        """Send the split's inputs and run it; a synchronous device runs it to the end."""
        device = split.device
        if not isinstance(device, AsyncDevice):
            split.run()
            return
        read = self._done.get((device.name, number))
        for source, copy in split.inputs:
            device.send(copy, tensor_bytes(source), read)
        self._done[device.name, number] = device.start(split.program)


class PipelinedPlan(Plan):
    """A plan whose `run` does not wait for its last splits; a reader of its results waits. Its
    inputs may be set again at once, because the plan reads inputs before it sends them.

    number  number of its copies
    """

    def __init__(
        self, graph: Graph, splits: list[Split], pipeline: GraphPipeline, number: int
    ) -> None:
        super().__init__(graph, splits)
        self.pipeline = pipeline
        self.number = number

    def run(self) -> None:
        if self.times is not None:  # devices with time measurement run one after the other
            super().run()
            return
        for split in self.splits:
            self.pipeline.start(split, self.number)

    def run_in_parts(self) -> Iterator[None]:
        self.run()
        yield
