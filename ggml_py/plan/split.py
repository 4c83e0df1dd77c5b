"""Splitting of a graph into parts for one device each, with copies between parts
(ggml-backend.cpp:ggml_backend_sched_split_graph, pass 5).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from ggml_py.backend import Work
from ggml_py.backend.null import make_reader
from ggml_py.graph import Graph
from ggml_py.opspec import OPS
from ggml_py.plan.assign import Assignment, is_view, sources
from ggml_py.tensor import FLAG_INPUT, FLAG_OUTPUT, FLAG_WEIGHT, Tensor


@dataclass(slots=True)
class GraphPart:
    """Consecutive nodes that run on one device.

    inputs  (source, copy) pairs, copied to the device before the nodes run
    steps   steps of the part, set later: single nodes and fused nodes
    group   device of each source, for a REDUCE over the memories of several devices
    reported    nodes to report after the part has run
    """

    device: int
    nodes: list[Tensor] = field(default_factory=list)
    inputs: list[tuple[Tensor, Tensor]] = field(default_factory=list)
    steps: list[Work] = field(default_factory=list)
    group: list[int | None] | None = None
    reported: Sequence[Tensor] = ()

    @property
    def is_reduce(self) -> bool:
        """True if the part is a sum over devices; views of the sum may follow."""
        return bool(self.nodes) and self.nodes[0].op == "REDUCE"


class Splitter:
    """Splitter that cuts a graph at changes of device, and inserts copies of tensors.

    parts      parts in execution order
    arena_of   arena of each tensor and copy, by id: the device, or for inputs and copies in a
               pipeline, device + n_devices * (1 + copy)

    copy     index of this copy of the graph in a pipeline; None without a pipeline
    anyhow   True to give every REDUCE a group, even if one device could run it alone
    """

    def __init__(
        self, graph: Graph, assignment: Assignment, copy: int | None = None, anyhow: bool = False
    ) -> None:
        self.graph = graph
        self.anyhow = anyhow
        self.assignment = assignment
        self.names = [d.name for d in assignment.devices.all]
        self.number = copy
        self.arena_of = {id(t): assignment.find_device(t) for t in (*graph.leafs, *graph.nodes)}
        for t in graph.leafs:
            if t.flags & FLAG_INPUT:
                self.arena_of[id(t)] = self._arena_of_copies(assignment.find_device(t))
        self._copies: dict[tuple[int, int], Tensor] = {}
        self._replaced: list[tuple[Tensor, tuple[Tensor | None, ...]]] = []
        self.parts = [
            GraphPart(next((self._find_device(t) for t in graph.nodes if not is_view(t)), 0))
        ]
        for node in graph.nodes:
            self._append(node)

    def with_copies(self, waves: Sequence[Sequence[GraphPart]]) -> Graph:
        """Return the graph for the allocator, with the copies of each part before its nodes.

        waves  parts that run at the same time; if a part reads another device's memory, that
               tensor is not overwritten before all parts of the wave have ended
        """
        whole = Graph()
        whole.leafs = self.graph.leafs
        for wave in waves:
            for part in wave:
                whole.nodes += [copy for _, copy in part.inputs] + part.nodes
            if len({part.device for part in wave}) > 1:
                whole.nodes.append(self._wave_end(wave))
        return whole

    def _wave_end(self, wave: Sequence[GraphPart]) -> Tensor:
        """Return a node that only reads tensors, so that no earlier node overwrites them."""
        read: dict[int, Tensor] = {}
        for part in wave:
            found = [source for source, _ in part.inputs]
            found += [s for node in part.nodes if not is_view(node) for s in sources(node)]
            for t in found:
                if self._find_device(t.root) != part.device:
                    read[id(t.root)] = t.root
        return make_reader(read.values(), "end of a wave")

    def undo(self) -> None:
        """Restore the original sources of all nodes."""
        for node, src in self._replaced:
            node.src = src

    def _find_device(self, t: Tensor) -> int:
        return self.assignment.find_device(t)

    def _append(self, node: Tensor) -> None:
        part = self.parts[-1]
        if node.op == "REDUCE":
            self._append_reduce(node)
            return
        if not is_view(node):
            device = self._find_device(node)
            alone = part.is_reduce or (part.inputs and self._brings_weight(node, device))
            if device != part.device or alone:
                part = GraphPart(device)
                self.parts.append(part)
            self._localize(node, part)
        part.nodes.append(node)

    def _append_reduce(self, node: Tensor) -> None:
        """Append a REDUCE as a separate part, because all devices wait for its sum.

        Its sources keep their memory, because each source receives the sum. Earlier copies of the
        sources become invalid.
        """
        device = self._find_device(node)
        part = GraphPart(device, [node])
        if self.anyhow or any(self._is_elsewhere(s, device) for s in sources(node)):
            part.group = [None if s is None else self._find_device(s) for s in node.src]
        changed = {id(s.root) for s in sources(node)}
        self._copies = {
            key: copy
            for key, copy in self._copies.items()
            if copy.src[0] is None or id(copy.src[0].root) not in changed
        }
        self.parts.append(part)

    def _is_elsewhere(self, t: Tensor, device: int) -> bool:
        return self._find_device(t) != device and not self.assignment.can_read(device, t)

    def _brings_weight(self, node: Tensor, device: int) -> bool:
        """Return True if a node needs a copy of a weight.

        Such a node begins a part, so that copies of earlier weights can be overwritten.
        """
        return OPS[node.op].at_weights and any(
            s.flags & FLAG_WEIGHT and self._is_elsewhere(s, device) for s in sources(node)
        )

    def _localize(self, node: Tensor, part: GraphPart) -> None:
        src = tuple(
            self._copy(s, part) if s is not None and self._is_elsewhere(s, part.device) else s
            for s in node.src
        )
        if any(a is not b for a, b in zip(src, node.src, strict=True)):
            self._replaced.append((node, node.src))
            node.src = src

    def _arena_of_copies(self, device: int) -> int:
        return device if self.number is None else device + len(self.names) * (1 + self.number)

    def _copy(self, source: Tensor, part: GraphPart) -> Tensor:
        key = (id(source), part.device)
        copy = self._copies.get(key)
        if copy is None:
            # all parts of a device share one copy of a tensor
            name = f"{self.names[part.device]}#{source.name}#{self.number or 0}"
            copy = Tensor(source.type, source.ne, src=(source,), name=name, nb=source.nb)
            if self.number is not None:  # the device may read it until the next copy arrives
                copy.flags |= FLAG_INPUT | FLAG_OUTPUT
            self._copies[key] = copy
            self.arena_of[id(copy)] = self._arena_of_copies(part.device)
            part.inputs.append((source, copy))
        return copy
