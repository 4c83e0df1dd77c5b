"""Values of nodes that somebody wants to see, or to change, while all others stay fused.

A value that nothing overwrites is an output, and read after the run. Where something does, and for
values that may be changed, the graph is cut behind the node.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from ggml_py.graph import Graph
from ggml_py.opspec import OPS
from ggml_py.split import Part
from ggml_py.tensor import FLAG_COMPUTE, FLAG_OUTPUT, Tensor


@dataclass(frozen=True, slots=True)
class Taps:
    """What to do with which nodes.

    tell   called with each of them in every run, in the order in which values are there (where a
           scheduler watches all nodes, with all of them)
    read   nodes that it only reads
    stops  nodes that it may write to: what comes after reads what it left
    """

    tell: Callable[[Tensor], None]
    read: Sequence[Tensor] = ()
    stops: Sequence[Tensor] = ()


def settled(taps: Taps, graph: Graph) -> Taps:
    """Nodes to read that are changed later become stops; the others are kept to the end.

    Raises ValueError for a node that is not computed in this graph.
    """
    place = {id(t): i for i, t in enumerate(graph.nodes) if t.flags & FLAG_COMPUTE}
    for t in (*taps.read, *taps.stops):
        if id(t) not in place:
            raise ValueError(f"{t} is not computed in this graph")
    last_write: dict[int, int] = {}
    for t in graph.nodes:
        if id(t) in place and not OPS[t.op].view:
            last_write[id(t.root)] = place[id(t)]
    stopped = {id(t) for t in taps.stops}
    read = [t for t in taps.read if id(t) not in stopped]
    # a cache, which outlives the graph, or an input
    foreign = {id(t) for t in graph.leafs} | {id(t.root) for t in read if t.root.buffer is not None}
    kept = [
        t for t in read
        if id(t.root) not in foreign and last_write.get(id(t.root), -1) <= place[id(t)]
    ]  # fmt: skip
    for t in kept:
        t.flags |= FLAG_OUTPUT
        t.root.flags |= FLAG_OUTPUT
    known = {id(t) for t in kept}
    stops = [*taps.stops, *(t for t in read if id(t) not in known)]
    return Taps(taps.tell, kept, sorted(stops, key=lambda t: place[id(t)]))


def cut(parts: Sequence[Part], stops: Sequence[Tensor]) -> list[Part]:
    """Parts that end with each of the nodes."""
    ends, found = {id(t) for t in stops}, list[Part]()
    for part in parts:
        piece = replace(part, nodes=[])
        for node in part.nodes:
            piece.nodes.append(node)
            if id(node) in ends:
                piece.told = [node]
                found.append(piece)
                piece = Part(part.device)
        if piece.nodes or piece.inputs:
            found.append(piece)
    return found
