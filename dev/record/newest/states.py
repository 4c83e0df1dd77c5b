"""Node lists of recurrent states in the form of llama.cpp 0.5.0.

The newest llama.cpp reads all states with one GET_ROWS and uses two views of its result. 0.5.0
reads the states of the batch with one GET_ROWS and other states with another one.
"""

from __future__ import annotations

from typing import Any

from ggml_py.inspection.dump import Record

INDICES, VIEW = "rs_s_copy", " (view)"


def split_states(nodes: list[Record]) -> list[Record]:
    """Replace each GET_ROWS of states and its views. New nodes keep the index of an old one, as in
    their names; nodes without an old index have -1."""
    found: list[Record] = []
    owners: dict[str, str] = {}  # new name of a result, by the former one
    names: dict[Any, str] = {}  # new name of a view, by the former one and the shape
    i = 0
    while i < len(nodes):
        if nodes[i]["op"] == "GET_ROWS" and nodes[i]["src"][1]["name"] == INDICES:
            rows, main, _, _, _ = block = nodes[i : i + 5]
            new = _name_of(main)
            owners[rows["name"]] = names[_key(main)] = new
            found += _split(block, new, first=len(owners) == 1)
            i += 5
            continue
        node, i = nodes[i], i + 1
        owner = owners.get(node["view_src"])
        src = [{**s, "name": names.get(_key(s), s["name"])} for s in node["src"]]
        names.pop(_key(node), None)
        if owner and node["src"][0]["name"].startswith(VIEW):
            src[0]["name"] = owner + node["src"][0]["name"].removeprefix(VIEW)
        if owner and node["name"].startswith(VIEW):
            new = owner + node["name"].removeprefix(VIEW)
            names[_key(node)] = new
            node = {**node, "name": new}
        found.append({**node, "view_src": owner or node["view_src"], "src": src})
    return found


def _key(node: Record) -> Any:
    return node["name"], *node["ne"]


def _name_of(main: Record) -> str:
    return f"node_{main['i']}" if main["name"].endswith("(view)") else main["name"]


def _split(block: list[Record], name: str, first: bool) -> list[Record]:
    rows, main, rest, cache, copy = block
    table, indices = rows["src"]
    own = _indices(rows, indices, 0, main["ne"][1])
    others = _indices(rows, indices, main["ne"][1], rest["ne"][1])
    one = {**main, "op": "GET_ROWS", "name": name, "view_src": "", "params": [0] * 16}
    two = {**rows, "ne": rest["ne"], "nb": rest["nb"]}
    one["src"], two["src"] = [table, _source(1, own)], [table, _source(1, others)]
    to = {**copy, "name": f"{cache['name']} (copy of )"}
    to["src"] = [_source(0, two), copy["src"][1]]
    return [own, one, others, two, cache, to] if first else [one, two, cache, to]


def _indices(rows: Record, indices: Record, start: int, n: int) -> Record:
    return {
        **rows,
        "i": -1,
        "name": f"{INDICES} (view)",
        "op": "VIEW",
        "type": indices["type"],
        "ne": [n, 1, 1, 1],
        "nb": [4, *[4 * n] * 3],
        "offs": 4 * start,
        "view_src": INDICES,
        "params": [4 * start, *[0] * 15],
        "src": [{**indices, "k": 0}],
    }


def _source(k: int, node: Record) -> dict[str, Any]:
    return {"k": k, **{key: node[key] for key in ("name", "type", "ne", "nb")}}
