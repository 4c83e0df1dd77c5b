"""Names of nodes: lookup in a graph.

A name is a node's (`l_out-3`), a pattern of names (`l_out-*`, as in `fnmatch`), or any of
TransformerLens's hook points (`blocks.3.hook_resid_post`, `blocks.*.hook_resid_post`; see
llama_py.hooks.points). If several nodes have the name, it means the last; `Qcur-3#0` is the first,
`Qcur-3#-2` the last but one.

`kq_soft_max-3` and `blocks.3.attn.hook_pattern` are also available with flash attention. It does
not store these weights, so additional nodes compute them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase

from ggml_py.errors import ContextError
from ggml_py.tensor import FLAG_COMPUTE, Tensor
from llama_py.graph.result import GraphResult, Weights
from llama_py.hooks.points import LAYER_POINTS, PATTERN, POINTS

WEIGHTS = "kq_soft_max-{il}"


@dataclass(frozen=True, slots=True)
class FoundNode:
    """A node with a requested value.

    key      requested name
    weights  builds the attention weights if they are requested in place of the node's value
    """

    key: str
    node: Tensor
    weights: Weights | None = None


class Names:
    """The names of a graph's nodes."""

    def __init__(self, res: GraphResult) -> None:
        self._nodes: dict[str, list[FoundNode]] = {}
        for t in res.graph.nodes:
            if t.flags & FLAG_COMPUTE:
                self._nodes.setdefault(t.name, []).append(FoundNode(t.name, t))
        for il, (node, weights) in res.attention.items():
            self._nodes.setdefault(WEIGHTS.format(il=il), [FoundNode("", node, weights)])
        self.n_layers = 1 + max((_layer(name) for name in self._nodes), default=-1)

    def find(self, pattern: str) -> list[FoundNode]:
        """Return the nodes that a name or a pattern matches."""
        if "hook_" in pattern:
            return [
                found
                for point in fnmatch_all(self._points(), pattern)
                if (found := self._find_point(point)) is not None
            ]
        name, _, number = pattern.partition("#")
        names = [name] if name in self._nodes else fnmatch_all(self._nodes, name)
        numbered = [(n, self._get_numbered(n, number)) for n in names]
        end = f"#{number}" if number else ""
        return [FoundNode(n + end, f.node, f.weights) for n, f in numbered if f is not None]

    def get_nodes(self, name: str) -> list[Tensor]:
        return [found.node for found in self._nodes.get(name, ())]

    def similar(self, pattern: str) -> list[str]:
        """Return a few similar names; for hook points, others of the layer."""
        points = [point for point in self._points() if self._find_point(point) is not None]
        layer = re.match(r"blocks\.\d+\.", pattern)
        if layer:
            points = [point for point in points if point.startswith(layer[0])] or points
        known = points if "hook_" in pattern else [*points, *self._nodes]
        import difflib

        return difflib.get_close_matches(pattern, known, 4, 0.5)

    def _get_numbered(self, name: str, number: str) -> FoundNode | None:
        nodes, i = self._nodes[name], int(number or -1)
        return nodes[i] if -len(nodes) <= i < len(nodes) else None

    def _points(self) -> list[str]:
        inner = (*LAYER_POINTS, PATTERN)
        return [*POINTS, *(f"blocks.{il}.{p}" for il in range(self.n_layers) for p in inner)]

    def _find_point(self, point: str) -> FoundNode | None:
        """Return the node of a hook point in this graph."""
        if point in POINTS:
            node = POINTS[point](self, 0)
        else:
            _, number, inner = point.split(".", 2)
            if inner == PATTERN:
                weights = self._nodes.get(WEIGHTS.format(il=number), [])
                return FoundNode(point, weights[-1].node, weights[-1].weights) if weights else None
            node = LAYER_POINTS[inner](self, int(number))
        computed = node is not None and node.flags & FLAG_COMPUTE
        return FoundNode(point, node) if node is not None and computed else None


def check_name(pattern: str) -> str:
    """Raise ContextError for an invalid name; return a valid name."""
    if not isinstance(pattern, str) or not re.fullmatch(r"[^#]+(#-?\d+)?", pattern):
        raise ContextError(
            f"{pattern!r} is not a node name or pattern; use, for example, l_out-3, l_out-*, "
            "Qcur-3#0 or blocks.3.hook_resid_post"
        )
    return pattern


def fnmatch_all(names: Iterable[str], pattern: str) -> list[str]:
    return [name for name in names if fnmatchcase(name, pattern)]


def _layer(name: str) -> int:
    found = re.search(r"-(\d+)$", name)
    return int(found[1]) if found else -1
