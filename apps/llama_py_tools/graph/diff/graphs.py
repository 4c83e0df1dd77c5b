"""First difference of two graphs, as text."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence

from ggml_py.inspection.dump import NodeDifference, Record
from ggml_py.opspec import OPS
from llama_py.gguf.metadata import printable

WORDS = struct.Struct("<16i")


def lines(a: Sequence[Record], b: Sequence[Record], found: NodeDifference) -> Iterator[str]:
    """Yield the field that differs, both nodes, and the nodes before them if a graph ends, without
    control characters."""
    yield from map(printable, _lines(a, b, found))


def _lines(a: Sequence[Record], b: Sequence[Record], found: NodeDifference) -> Iterator[str]:
    longer = a if found.index < len(a) else b
    yield f"{found} (graph {longer[found.index]['dec']})"
    for side, nodes in (("first", a), ("second", b)):
        if found.index < len(nodes):
            yield f"  {side:6}  {show_node(nodes[found.index])}"
        else:
            yield f"  {side:6}  " + (f"ends after {nodes[-1]['name']}" if nodes else "is empty")


def show_node(r: Record) -> str:
    """Return a node as `norm-0 = RMS_NORM(embd f32 [64, 2]) -> f32 [64, 2], eps=1e-05`."""
    sources = ", ".join(f"{s['name']} {value(s)}" for s in r.get("src", ()))
    text = f"{r['name']} = {r.get('op', '?')}({sources}) -> {value(r)}"
    if r.get("offs"):
        text += f" at byte {r['offs']} of {r.get('view_src')}"
    spec = OPS.get(r.get("op", ""))
    if spec is not None and spec.fields and "params" in r:
        values = spec.layout.unpack_from(WORDS.pack(*r["params"]))
        named = zip(spec.fields, values, strict=False)
        text += "".join(
            f", {k}={v:.7g}" if isinstance(v, float) else f", {k}={v}" for k, v in named
        )
    return text


def value(r: Record) -> str:
    """Return `f32 [64, 2]`: the type, and the shape without trailing dimensions of 1."""
    ne = list(r.get("ne", ()))
    while len(ne) > 1 and ne[-1] == 1:
        ne.pop()
    return f"{r.get('type', '?')} {ne}"
