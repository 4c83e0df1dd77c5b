"""The scheduler: which device runs which node, memory for the graph, and the frozen plan (ggml-
backend.cpp).

One device per scheduler is served here; every node must be runnable on it, and a refusal says why.
"""

from __future__ import annotations

from collections.abc import Callable

from ggml_py.alloc import MemoryPlan, plan_memory
from ggml_py.backend import Buffer, CompileOptions, Device
from ggml_py.errors import UnsupportedOp
from ggml_py.graph import Graph
from ggml_py.kernels import describe
from ggml_py.opspec import OPS
from ggml_py.plan import Plan, Split
from ggml_py.tensor import Tensor


class Scheduler:
    """Places graphs on devices and owns their compute buffers, which grow to the largest graph.

    watch  called with each node's tensor once its value is there; nodes then run one by one
    """

    def __init__(
        self,
        devices: list[Device],
        options: CompileOptions | None = None,
        watch: Callable[[Tensor], None] | None = None,
    ) -> None:
        self.devices = devices
        self.options = options or CompileOptions()
        self.watch = watch
        self._buffers: list[Buffer | None] = [None] * len(devices)

    def reserve(self, graph: Graph) -> list[int]:
        """Make the compute buffers large enough for this graph; returns their sizes in bytes, by
        device.
        """
        memory = self._plan_memory(graph)
        for i, size in enumerate(memory.sizes):
            self._buffer(i, size)
        return self.compute_sizes()

    def compute_sizes(self) -> list[int]:
        return [0 if b is None else b.size for b in self._buffers]

    def plan(self, graph: Graph) -> Plan:
        """Assign, allocate and compile. UnsupportedOp tells each node no device can run."""
        self._check(graph)
        memory = self._plan_memory(graph)
        for tensor, arena, offset in memory.placed:
            tensor.buffer, tensor.offset = self._buffer(arena, memory.sizes[arena]), offset
        for t in graph.nodes:
            if t.view_src is not None:
                t.buffer, t.offset = t.view_src.buffer, t.view_src.offset + t.view_offs
        if self.watch is None:
            return Plan(graph, [self._split(graph.compute_nodes())])
        return Plan(graph, [self._split([t]) for t in graph.nodes], self.watch)

    def _split(self, nodes: list[Tensor]) -> Split:
        device = self.devices[0]
        computed = [t for t in nodes if not OPS[t.op].view]
        return Split(device, nodes, [], device.compile(computed, self.options))

    def why_not(self, node: Tensor) -> str:
        """ "" if some device can run the node, else each device's reason."""
        reasons = []
        for d in self.devices:
            reason = d.why_not(node)
            if not reason:
                return ""
            reasons.append(f"{d.name}: {reason}")
        return "; ".join(reasons)

    def _check(self, graph: Graph) -> None:
        refused = [(t, why) for t in graph.compute_nodes() if (why := self.why_not(t))]
        if refused:
            lines = [f"{t.name}: {describe(t)}: {why}" for t, why in refused[:5]]
            more = f" (and {len(refused) - 5} more)" if len(refused) > 5 else ""
            raise UnsupportedOp("no device can run " + "; ".join(lines) + more)

    def _plan_memory(self, graph: Graph) -> MemoryPlan:
        return plan_memory(graph, None, tuple(d.alignment for d in self.devices))

    def _buffer(self, index: int, size: int) -> Buffer:
        buffer = self._buffers[index]
        if buffer is None or buffer.size < size:
            buffer = self._buffers[index] = self.devices[index].alloc(size)
        return buffer
