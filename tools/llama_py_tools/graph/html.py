"""Graphs as one HTML file without outside parts: layers fold, sources are links, names can be
searched.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape

from ggml_py.graph import Graph
from ggml_py.opspec import OPS
from ggml_py.tensor import Tensor
from llama_py_tools.graph.layers import groups, shape

HEAD = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{title}</title><style>
body {{ font: 14px/1.4 system-ui, sans-serif; margin: 2em; color: #222; background: #fff; }}
h1 {{ font-size: 1.3em; }}
summary {{ cursor: pointer; padding: .2em 0; font-weight: 600; }}
details details {{ margin-left: 1em; }}
table {{ border-collapse: collapse; margin: .3em 0 1em 1em; }}
td, th {{ padding: .1em .8em .1em 0; text-align: left; vertical-align: top; }}
td {{ font-family: monospace; border-top: 1px solid #eee; }}
td:first-child {{ color: #999; text-align: right; }}
tr:target td {{ background: #fff3c4; }}
.view td {{ color: #888; }}
a {{ color: #0550ae; text-decoration: none; }}
.leaf {{ color: #7a4b00; }}
input {{ font: inherit; padding: .3em; width: 24em; max-width: 100%; }}
</style></head><body><h1>{title}</h1>
<p><input id="find" placeholder="show only nodes whose name or op contains ..."></p>
"""

TAIL = """<script>
const find = document.getElementById("find");
find.addEventListener("input", () => {
  const text = find.value.toLowerCase();
  for (const row of document.querySelectorAll("tr[id]"))
    row.hidden = !row.dataset.find.includes(text);
  for (const part of document.querySelectorAll("details.layer")) {
    part.hidden = !part.querySelector("tr[id]:not([hidden])");
    if (text) part.open = true;
  }
});
const show = () => {
  const row = location.hash && document.getElementById(location.hash.slice(1));
  for (let e = row; e; e = e.parentElement) if (e.tagName === "DETAILS") e.open = true;
  if (row) row.scrollIntoView({ block: "center" });
};
addEventListener("hashchange", show);
show();
</script></body></html>
"""


def html(graphs: Sequence[Graph], title: str) -> Iterator[str]:
    """The page, in pieces."""
    yield HEAD.format(title=escape(title))
    for dec, graph in enumerate(graphs):
        what = f"graph {dec}: {len(graph.nodes)} nodes, {len(graph.leafs)} leafs"
        yield f"<details{' open' if dec == 0 else ''}><summary>{what}</summary>\n"
        ids = {id(t): f"g{dec}n{i}" for i, t in enumerate(graph.nodes)}
        for name, nodes in groups(graph):
            yield f'<details class="layer"><summary>{name}: {len(nodes)} nodes</summary>\n<table>'
            yield "<tr><th>#<th>name<th>op<th>result<th>sources<th>parameters</tr>\n"
            for i, t in nodes:
                yield _row(i, t, ids)
            yield "</table></details>\n"
        yield "</details>\n"
    yield TAIL


def _row(i: int, t: Tensor, ids: dict[int, str]) -> str:
    kind = ' class="view"' if t.is_view() else ""
    text = escape(f"{t.name} {t.op}".lower(), quote=True)
    sources = "<br>".join(_source(s, ids) for s in t.src if s is not None)
    cells = (str(i), escape(t.name), t.op, shape(t), sources, escape(_params(t)))
    return f'<tr id="{ids[id(t)]}"{kind} data-find="{text}"><td>{"<td>".join(cells)}</tr>\n'


def _source(s: Tensor, ids: dict[int, str]) -> str:
    name, where = escape(s.name), ids.get(id(s))
    link = f'<a href="#{where}">{name}</a>' if where else f'<span class="leaf">{name}</span>'
    return f"{link} {shape(s)}"


def _params(t: Tensor) -> str:
    """Op parameters by name, and where in its source a view begins."""
    named = dict(zip(OPS[t.op].fields, t.params, strict=False))
    if t.view_src is not None and t.view_offs:
        named["offset"] = t.view_offs
    return ", ".join(f"{key}={value}" for key, value in named.items())
