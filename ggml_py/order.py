"""The order in which the nodes of a graph run, where another one than its own needs less memory."""

from __future__ import annotations

from collections.abc import Callable

from ggml_py.graph import Graph
from ggml_py.opspec import OPS
from ggml_py.tensor import Tensor

INTO_OTHERS = ("CPY", "SET_ROWS")


def stored_early(graph: Graph, device_of: Callable[[Tensor], int]) -> Graph:
    """The graph with what it stores in a cache stored as soon as it is there: its memory is free
    for what is computed next (the keys, while the values wait). Nothing moves past a node of
    another device, or one that reads or writes what is stored or where.
    """
    ordered = Graph()
    ordered.leafs = graph.leafs
    nodes = ordered.nodes
    for node in graph.nodes:
        if not _is_store(node):
            nodes.append(node)
            continue
        looks = {i for s in node.src if s is not None for i in _looks(s)}
        touched = {id(t.root) for t in (node, *node.src) if t is not None}
        at = len(nodes)
        while at and (
            id(nodes[at - 1]) in looks or not _holds(nodes[at - 1], touched, node, device_of)
        ):
            at -= 1
        passed = nodes[at:]
        along = [t for t in passed if id(t) in looks]
        nodes[at:] = [*along, node, *(t for t in passed if id(t) not in looks)]
    return ordered


def _looks(t: Tensor) -> set[int]:
    """The views through which a tensor is a look at another: they move with who reads it."""
    found = set()
    while t.op != "NONE" and OPS[t.op].view:
        found.add(id(t))
        t = t.source(0)
    return found


def _is_store(node: Tensor) -> bool:
    """Whether it writes into memory that was there before."""
    root = node.root
    return node.op in INTO_OTHERS and root is not node and root.op == "NONE"


def _holds(
    before: Tensor, touched: set[int], node: Tensor, device_of: Callable[[Tensor], int]
) -> bool:
    """Whether the node has to stay behind that one."""
    if OPS[before.op].view:
        return id(before.root) in touched
    if device_of(before) != device_of(node):
        return True
    written, read = id(before.root), {id(s.root) for s in before.src if s is not None}
    return written in touched or id(node.root) in read
