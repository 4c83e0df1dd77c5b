"""Layout of compute buffers over time: the bytes in use while each node runs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ggml_py.tensor import FLAG_INPUT, FLAG_OUTPUT, Buffer, Tensor
from llama_py_tools.graph.view.seen import GraphRecord
from llama_py_tools.graph.view.tree import is_computed


@dataclass(slots=True)
class MemoryRange:
    """Byte range of a tensor in a compute buffer, in use from node `first` to node `last`."""

    tensor: Tensor
    first: int
    last: int

    @property
    def offset(self) -> int:
        return self.tensor.offset

    @property
    def size(self) -> int:
        return self.tensor.nbytes


@dataclass(slots=True)
class Memory:
    """Layout of one compute buffer.

    alive  bytes in use while each node runs
    order  node numbers in execution order; see ggml_py/plan/order.py
    """

    device: str
    size: int
    places: list[MemoryRange]
    alive: list[int]
    order: Sequence[int]

    @property
    def kind(self) -> str:
        """Return "inputs" for a buffer without results, otherwise "results"."""
        return "results" if any(p.tensor.op != "NONE" for p in self.places) else "inputs"

    @property
    def peak(self) -> tuple[int, int]:
        """Peak bytes in use, and the position of the first node that reaches this peak."""
        most = max(self.alive, default=0)
        return most, self.alive.index(most) if self.alive else 0


def memories(seen: GraphRecord) -> list[Memory]:
    """Return the compute buffers of a planned graph."""
    n, devices, order = len(seen.graph.nodes), seen.devices(), _order(seen)
    buffers: dict[int, tuple[Buffer, str, list[MemoryRange]]] = {}
    for place in _places(seen, order):
        buffer = place.tensor.buffer
        assert buffer is not None
        name = devices.get(id(seen.graph.nodes[order[place.first]]), "")
        buffers.setdefault(id(buffer), (buffer, name, []))[2].append(place)
    return [
        Memory(name, buffer.size, places, alive(places, n), order)
        for buffer, name, places in buffers.values()
    ]


def _places(seen: GraphRecord, order: Sequence[int]) -> Iterator[MemoryRange]:
    """Yield the range of each tensor in a compute buffer: results, inputs and copies.

    Inputs and outputs keep their memory to the end. Sources of a fused step keep their memory until
    the step's last node, or one node less if the result may overwrite the sources.
    """
    nodes, steps, spent = seen.graph.nodes, seen.last_of_step(), seen.overwritable_sources()
    index = {id(nodes[i]): now for now, i in enumerate(order)}
    last: dict[int, int] = {}
    for t in nodes:
        runs = index[id(steps.get(id(t), t))]
        for s in t.src:
            if s is not None and is_computed(t):
                until = runs - ((id(t), id(s)) in spent)
                last[id(s.root)] = max(last.get(id(s.root), 0), until)
    splits = [s for s in (seen.plan.splits if seen.plan else []) if s.nodes]
    for split in splits:
        for source, _ in split.inputs:
            root, i = id(source.root), index[id(split.nodes[0])]
            last[root] = max(last.get(root, 0), i)
    kept = {id(t.root) for t in nodes if t.flags & FLAG_OUTPUT}
    own = [t for t in nodes if t.view_src is None and t.buffer is not None]
    for t in own:
        i = index[id(t)]
        yield MemoryRange(t, i, len(nodes) - 1 if id(t) in kept else max(i, last.get(id(t), i)))
    for split in splits:
        for _, copy in split.inputs:
            if copy.buffer is not None:
                i = index[id(split.nodes[0])]
                yield MemoryRange(copy, i, max(i, last.get(id(copy), i)))
    buffers = {id(t.buffer) for t in own}
    for t in seen.graph.leafs:
        computed = t.flags & FLAG_INPUT or id(t.buffer) in buffers
        if t.buffer is not None and t.view_src is None and computed:
            yield MemoryRange(t, 0, len(nodes) - 1)


def _order(seen: GraphRecord) -> list[int]:
    """Return node numbers in execution order; a plan may reorder nodes."""
    number = {id(t): i for i, t in enumerate(seen.graph.nodes)}
    splits = seen.plan.splits if seen.plan else []
    order = [number[id(t)] for split in splits for t in split.nodes if id(t) in number]
    return order if len(order) == len(number) else [*range(len(number))]


def alive(places: list[MemoryRange], n_nodes: int) -> list[int]:
    """Return the bytes in use while each of n_nodes runs; bytes reused in place count once."""
    change = [0] * (n_nodes + 1)
    begins = {(p.offset, p.first) for p in places}
    for p in places:
        taken = p.first < p.last and (p.offset, p.last) in begins
        change[p.first] += p.size
        change[p.last + (not taken)] -= p.size
    total, found = 0, list[int]()
    for more in change[:n_nodes]:
        total += more
        found.append(total)
    return found
