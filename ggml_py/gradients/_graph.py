"""Graphs that compute gradients (ggml.c:ggml_build_backward_expand)."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from functools import cache

from ggml_py.backend.kernels import describe, import_families
from ggml_py.errors import GGMLError
from ggml_py.gradients._declare import GRADIENTS, Gradient
from ggml_py.graph import Graph
from ggml_py.ops import add
from ggml_py.opspec import OPS
from ggml_py.tensor import Tensor
from ggml_py.types import F32


@cache
def all_gradients() -> dict[tuple[str, int], Gradient | None]:
    """Return gradients by op and source number; None if no gradient passes."""
    import_families(sys.modules[__package__])
    return GRADIENTS


def build_backward_expand(
    graph: Graph, result: Tensor, grad: Tensor, params: Iterable[Tensor]
) -> list[Tensor | None]:
    """Append d loss / d param of each param, f32 with the param's shape; None for zero.

    grad    d loss / d result: for a loss itself, one f32 that is 1

    Raises GGMLError if an op in between has no gradient, is not f32, or overwrites its source.
    """
    wanted = list(params)
    moved = _find_dependents(graph, wanted)
    found = {id(result): grad}
    for t in reversed(graph.nodes[: graph.nodes.index(result) + 1]):
        if id(t) in moved and id(t) in found:
            for i, s in enumerate(t.src):
                if s is not None and id(s) in moved and (make := _gradient(t, i)) is not None:
                    part = make(t, found[id(t)])
                    before = found.get(id(s))
                    found[id(s)] = part if before is None else add(before, part)
                    found[id(s)].set_name(f"grad for {s.name}")
    grads = [found.get(id(p)) for p in wanted]
    for g in grads:
        if g is not None:
            graph.build_forward_expand(g)
    return grads


def _find_dependents(graph: Graph, params: list[Tensor]) -> set[int]:
    """Return the ids of params and of all nodes that depend on a param."""
    moved = {id(p) for p in params}
    for t in graph.nodes:
        passing = (i for i, s in enumerate(t.src) if id(s) in moved)
        if any(all_gradients().get((t.op, i), True) for i in passing):
            moved.add(id(t))
    return moved


def _gradient(t: Tensor, i: int) -> Gradient | None:
    """Return the checked gradient function of source i."""
    key = (t.op, i)
    if key not in all_gradients():
        raise GGMLError(
            f"no gradient of {describe(t)} with respect to source {i}; known gradients are in "
            "ggml_py/gradients"
        )
    make = all_gradients()[key]
    s = t.src[i]
    if make is None or s is None:
        return None
    if t.type is not F32 or s.type is not F32:
        raise GGMLError(
            f"gradients need f32, got {describe(t)}; compute this part of the graph in f32"
        )
    if t.view_src is s.root and not OPS[t.op].view:
        raise GGMLError(
            f"{describe(t)} overwrites its source, whose values the gradient needs; compute it "
            "out of place"
        )
    return make
