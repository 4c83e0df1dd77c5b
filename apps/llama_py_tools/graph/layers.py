"""Nodes of a graph grouped by layer, and those between layers."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby

from ggml_py.graph import Graph
from ggml_py.inspection.dump import find_layer
from ggml_py.tensor import Tensor

PART = 1000  # number of a part of a shared layer: 1000 times the layer's number, plus the part's

Group = tuple[str, list[tuple[int, Tensor]]]  # title, nodes with their index


def groups(graph: Graph) -> list[Group]:
    """Return runs of nodes of one layer; nodes without a layer in the name join adjacent nodes."""
    layers = find_layers(
        Tensor(name=t.name) for t in graph.nodes
    )  # sources may be of another layer
    before = _carry_forward(layers)
    after = _carry_forward(layers[::-1])[::-1]
    found = [a if a == b else None for a, b in zip(before, after, strict=True)]
    items = zip(found, enumerate(graph.nodes), strict=True)
    return [
        ("outside of layers" if layer is None else f"layer {layer}", [node for _, node in run])
        for layer, run in groupby(items, key=lambda item: item[0])
    ]


def find_layers(nodes: Iterable[Tensor]) -> list[int | None]:
    """Return the layer of each node by its name, in order. Parts of the first layer look like
    layers: the first layer precedes parts of others."""
    found = [find_layer(t) for t in nodes]
    if max((n for n in found if n is not None), default=0) < PART:
        return found
    told: list[int | None] = []
    is_first = True
    for n in found:
        is_first = is_first and (n or 0) < PART
        told.append(None if n is None else n // PART if n >= PART else 0 if is_first else n)
    return told


def _carry_forward(layers: list[int | None]) -> list[int | None]:
    """Replace each None by the last layer before it, if any."""
    out: list[int | None] = []
    for layer in layers:
        out.append(layer if layer is not None or not out else out[-1])
    return out


def shape(t: Tensor) -> str:
    """Return `f32 [64, 4]`: the type, and ne without trailing dimensions of 1."""
    ne = list(t.ne)
    while len(ne) > 1 and ne[-1] == 1:
        ne.pop()
    return f"{t.type.name} {ne}"
