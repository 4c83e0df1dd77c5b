"""Conversion of graphs for Graphviz: one cluster per layer, an edge from each source."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ggml_py.graph import Graph
from ggml_py.tensor import Tensor
from llama_py_tools.graph.layers import groups, shape

HEAD = """digraph {
  rankdir=TB; compound=true; fontname="monospace";
  node [shape=box, style=filled, fillcolor=white, fontname="monospace", fontsize=10];
  edge [color="#666666", arrowsize=0.6];
"""


def dot(graphs: Sequence[Graph]) -> Iterator[str]:
    """Yield one digraph with all graphs side by side."""
    yield HEAD
    for dec, graph in enumerate(graphs):
        yield f'  subgraph cluster_{dec} {{ label="graph {dec}"; color="#999999";\n'
        yield from _graph(dec, graph)
        yield "  }\n"
    yield "}\n"


def _graph(dec: int, graph: Graph) -> Iterator[str]:
    ids = {id(t): f"n{dec}_{i}" for i, t in enumerate(graph.nodes)}
    ids |= {id(t): f"l{dec}_{i}" for i, t in enumerate(graph.leafs)}
    for t in graph.leafs:
        label = quote(f"{t.name}\n{shape(t)}")
        yield f'    {ids[id(t)]} [label={label}, shape=ellipse, fillcolor="#eeeeee"];\n'
    for number, (title, nodes) in enumerate(groups(graph)):
        inside = title.startswith("layer")
        if inside:
            yield f"    subgraph cluster_{dec}_{number} {{ label={quote(title)};\n"
        for i, t in nodes:
            yield f"    {ids[id(t)]} [label={quote(_label(i, t))}{_style(t)}];\n"
        if inside:
            yield "    }\n"
    for t in graph.nodes:
        for s in t.src:
            if s is not None:
                yield f"    {ids[id(s)]} -> {ids[id(t)]};\n"


def _label(i: int, t: Tensor) -> str:
    return f"{i} {t.name}\n{t.op}\n{shape(t)}"


def _style(t: Tensor) -> str:
    """Return a dashed style for views, which have no cost."""
    return ', style="dashed"' if t.is_view() else ""


def quote(text: str) -> str:
    """Quote a string for DOT."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'
