"""Execution order of a graph's nodes that needs less memory than its own order."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable

from ggml_py.fusion.match import changed_tensors
from ggml_py.graph import Graph
from ggml_py.opspec import OPS
from ggml_py.tensor import Tensor

INTO_OTHERS = ("CPY", "SET_ROWS")


def stored_early(graph: Graph, device_of: Callable[[Tensor], int]) -> Graph:
    """Return the graph with cache stores, and the nodes needed only by a store, as early as
    possible. That frees memory (keys and values before the queries). Nodes do not move past nodes
    of another device, or nodes that access the same memory.
    """
    ordered = Graph()
    ordered.leafs = graph.leafs
    nodes = ordered.nodes
    readers = Counter([id(s) for node in graph.nodes for s in (*node.src, node.view_src)])
    for node in graph.nodes:
        nodes.append(node)
        if _is_store(node):
            _move_up(nodes, readers, device_of)
    return ordered


def _move_up(
    nodes: list[Tensor], readers: Counter[int], device_of: Callable[[Tensor], int]
) -> None:
    """Run the last node as early as possible, with the nodes that only it needs.

    readers  number of reads by node
    """
    node, moving, passed = nodes.pop(), list[Tensor](), list[Tensor]()
    device, needs = device_of(node), defaultdict[int, int](int)
    reads, writes = set[int](), set[int]()

    def move(t: Tensor) -> None:
        moving.append(t)
        for s in (*t.src, t.view_src):
            needs[id(s)] += 1
        reads.update([id(s.root) for s in t.src if s is not None])
        writes.update([id(w.root) for w in changed_tensors(t)])

    def holds(before: Tensor) -> bool:
        """Return True if the moved nodes must run after `before`, although they do not read it."""
        if OPS[before.op].view:
            return id(before.root) in writes
        if device_of(before) != device:
            return True
        made = [id(w.root) for w in changed_tensors(before)]
        read = [id(s.root) for s in before.src if s is not None]
        return not (reads.isdisjoint(made) and writes.isdisjoint((*made, *read)))

    move(node)
    while nodes:
        before = nodes[-1]
        if needs[id(before)]:
            alone = needs[id(before)] == readers[id(before)] and device_of(before) == device
            if not alone and not OPS[before.op].view:
                break
            move(before)
        elif holds(before):
            break
        else:
            passed.append(before)
        nodes.pop()
    nodes += [*reversed(moving), *reversed(passed)]


def _is_store(node: Tensor) -> bool:
    """Return True if the node writes into memory that existed before."""
    return node.op in INTO_OTHERS and node.root is not node and node.root.op == "NONE"
