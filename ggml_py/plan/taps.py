"""Taps: nodes with values that an observer reads or changes; all other nodes may be fused.

A value that no later node overwrites is an output, read after the run. The graph is cut after a
node if its value is overwritten later or may be changed by the observer.

A node's result may overwrite its sources, and a fused step may omit its sources. If the observer
also reads sources, `Taps.sources` declares their nodes: then all their sources are stored and not
overwritten (`hold_sources`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from ggml_py.backend.null import make_reader
from ggml_py.fusion.match import changed_tensors
from ggml_py.graph import Graph
from ggml_py.opspec import OPS
from ggml_py.plan.split import GraphPart
from ggml_py.tensor import FLAG_COMPUTE, FLAG_OUTPUT, Tensor


@dataclass(frozen=True, slots=True)
class Taps:
    """Taps on the nodes of a graph.

    tell   function called in every run with each node, in execution order (with all nodes if the
           scheduler watches all nodes)
    read   nodes that the observer only reads
    stops  nodes that the observer may write to; later nodes read the changed values
    sources  nodes with sources that the observer also reads, at the values that the node read
    """

    tell: Callable[[Tensor], None]
    read: Sequence[Tensor] = ()
    stops: Sequence[Tensor] = ()
    sources: Sequence[Tensor] = ()


def split_taps(taps: Taps, graph: Graph) -> Taps:
    """Separate read nodes into stops and outputs of the graph.

    A node becomes a stop if its value may change later, or if the observer reads its sources.
    Other nodes become outputs, which the observer reads after the run.

    Raises ValueError for a node that is not computed in this graph, and for a node in `sources`
    if its op overwrites a source.
    """
    place = {id(t): i for i, t in enumerate(graph.nodes) if t.flags & FLAG_COMPUTE}
    for t in (*taps.read, *taps.stops, *taps.sources):
        if id(t) not in place:
            raise ValueError(f"{t} is not computed in this graph; read a node of the graph")
    for t in taps.sources:
        if not keeps_sources(t):
            raise ValueError(
                f"{t.op} {t} overwrites its source; read the source before this node runs"
            )
    last_write: dict[int, int] = {}
    for t in graph.nodes:
        if id(t) in place and not OPS[t.op].view:
            last_write.update((id(w.root), place[id(t)]) for w in changed_tensors(t))
    stopped = {id(t): t for t in (*taps.stops, *taps.sources)}
    read = [t for t in taps.read if id(t) not in stopped]
    # caches, which outlive the graph, and inputs
    foreign = {id(t) for t in graph.leafs} | {id(t.root) for t in read if t.root.buffer is not None}
    kept = [
        t
        for t in read
        if id(t.root) not in foreign and last_write.get(id(t.root), -1) <= place[id(t)]
    ]
    for t in kept:
        t.flags |= FLAG_OUTPUT
        t.root.flags |= FLAG_OUTPUT
    known = {id(t) for t in kept}
    stops = [*stopped.values(), *(t for t in read if id(t) not in known)]
    return Taps(taps.tell, kept, sorted(stops, key=lambda t: place[id(t)]), taps.sources)


def keeps_sources(node: Tensor) -> bool:
    """Return True if the op does not change its sources."""
    if OPS[node.op].view:
        return True
    changed = {id(w.root) for w in changed_tensors(node)}
    return all(s is None or id(s.root) not in changed for s in node.src)


def hold_sources(graph: Graph, nodes: Iterable[Tensor]) -> Graph:
    """Return the graph with a node after each of `nodes` that reads the same sources.

    Memory planning and fused steps then see a later use of the sources: they are stored and not
    overwritten when the node has run.
    """
    held, found = {id(t) for t in nodes}, Graph()
    found.leafs = graph.leafs
    for t in graph.nodes:
        found.nodes.append(t)
        if id(t) in held:
            found.nodes.append(make_reader((s for s in t.src if s is not None), f"sources of {t}"))
    return found


def cut(parts: Sequence[GraphPart], stops: Sequence[Tensor]) -> list[GraphPart]:
    """Divide graph parts so that a part ends at each stop."""
    ends, found = {id(t) for t in stops}, list[GraphPart]()
    for part in parts:
        piece = replace(part, nodes=[])
        for node in part.nodes:
            piece.nodes.append(node)
            if id(node) in ends:
                piece.reported = [node]
                found.append(piece)
                piece = GraphPart(part.device)
        if piece.nodes or piece.inputs:
            found.append(piece)
    return found
