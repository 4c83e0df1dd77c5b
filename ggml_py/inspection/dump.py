"""Graphs as data and as text: one record per node, to read, to store, and to compare.

A record's keys: dec (which graph of a run), i, name, op, type, ne, nb, offs (bytes into view_src),
flags, view_src, params (op_params as 16 words), src. Lists of llama.cpp's nodes have the same.
"""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ggml_py._moved import former_names
from ggml_py.graph import Graph
from ggml_py.tensor import Tensor

Record = dict[str, Any]

_WORDS = struct.Struct("<16i")
_LAYER = re.compile(r"-(\d+)(?: \(|$)|^blk\.(\d+)\.|^(?:cache|per_step)_[a-z]+_l(\d+)")


def node_record(node: Tensor, i: int, dec: int = 0) -> Record:
    """Return one node as a record."""
    return {
        "dec": dec,
        "i": i,
        "name": node.name,
        "op": node.op,
        "type": node.type.name,
        "ne": list(node.ne),
        "nb": list(node.nb),
        "offs": node.view_offs,
        "flags": node.flags,
        "view_src": "" if node.view_src is None else node.view_src.name,
        "params": list(_WORDS.unpack(node.op_params())),
        "src": [
            {"k": k, "name": s.name, "type": s.type.name, "ne": list(s.ne), "nb": list(s.nb)}
            for k, s in enumerate(node.src)
            if s is not None
        ],
    }


def records(graph: Graph, dec: int = 0) -> list[Record]:
    """Return all nodes of a graph in execution order."""
    return [node_record(node, i, dec) for i, node in enumerate(graph.nodes)]


def dump_json(graph: Graph, dec: int = 0) -> Iterator[str]:
    """Yield one line of JSON per node."""
    for record in records(graph, dec):
        yield json.dumps(record, separators=(",", ":"))


def dump_text(graph: Graph) -> str:
    """Return the graph as readable text: nodes by layer, each as `i name = OP(sources) ->
    shape`."""
    lines: list[str] = []
    heading = ""
    for i, node in enumerate(graph.nodes):
        layer = find_layer(node)
        if layer is not None or not heading:
            new = "outside of layers" if layer is None else f"layer {layer}"
            if new != heading:
                heading = new
                lines += ["", heading] if lines else [heading]
        sources = ", ".join(_brief(s) for s in node.src if s is not None)
        skipped = "" if node.flags & 16 else "  (not computed)"
        lines.append(f"{i:5d} {node.name} = {node.op}({sources}) -> {_shape(node)}{skipped}")
    return "\n".join(lines) + "\n"


def find_layer(node: Tensor) -> int | None:
    """Return the layer in the name of the node, else of the first source that has one."""
    for t in (node, *node.src):
        found = _LAYER.search(t.name) if t is not None else None
        if found:
            return int(next(g for g in found.groups() if g is not None))
    return None


@dataclass(frozen=True, slots=True)
class NodeDifference:
    """First difference of two node lists: `field` of node `index` (named `name` in the first
    list)."""

    index: int
    name: str
    field: str
    a: Any
    b: Any

    def __str__(self) -> str:
        field = self.field if self.field.isprintable() else repr(self.field)
        return f"node {self.index} {self.name!r}: {field}: {self.a!r} != {self.b!r}"


def diff(a: Sequence[Record], b: Sequence[Record]) -> NodeDifference | None:
    """Return the first difference of two node lists, or None."""
    for index, (x, y) in enumerate(zip(a, b, strict=False)):
        if x != y:
            field = next(key for key in (*x, *y) if x.get(key) != y.get(key))
            return NodeDifference(index, x.get("name", ""), field, x.get(field), y.get(field))
    if len(a) != len(b):
        longer = a if len(a) > len(b) else b
        index = min(len(a), len(b))
        return NodeDifference(index, longer[index]["name"], "number of nodes", len(a), len(b))
    return None


def _brief(t: Tensor) -> str:
    return f"{t.name}{list(t.ne)}"


def _shape(t: Tensor) -> str:
    return f"{t.type} {list(t.ne)}"


if not TYPE_CHECKING:
    __getattr__ = former_names(__name__, layer_of="find_layer")
