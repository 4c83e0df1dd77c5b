"""Which weights an error comes from, where two files have different ones."""

from __future__ import annotations

import re
from collections.abc import Sequence

from llama_py_tools.graph.diff.found import Found, Node

Hurt = tuple[str, str, Node]  # weight, types, what is made with it


def by_weight(found: Found) -> list[Hurt]:
    """Nodes that read a weight which has another type in the other run, those with the largest
    errors of their own first."""
    ours, theirs = found.ours.by_key(), found.theirs.by_key()
    hurt: list[Hurt] = []
    for n in found.nodes:
        if n.made is None or n.key not in theirs:
            continue
        dec = n.key[0]
        for i in n.step or (n.key[1],):
            pairs = zip(ours[dec, i]["src"], theirs[dec, i]["src"], strict=False)
            hurt += [
                (a["name"], f"{b['type']} -> {a['type']}", n)
                for a, b in pairs
                if a["type"] != b["type"] and a["name"].endswith(".weight")
            ]
    return sorted(hurt, key=lambda h: -h[2].made.nmse if h[2].made else 0.0)


def by_kind(hurt: Sequence[Hurt]) -> list[tuple[str, str, int, float, float]]:
    """Name without the layer, types, how many, mean and largest error; the largest mean first."""
    kinds: dict[tuple[str, str], list[float]] = {}
    for name, types, node in hurt:
        assert node.made is not None
        kind = re.sub(r"^blk\.\d+\.", "", name)
        kinds.setdefault((kind, types), []).append(node.made.nmse)
    rows = [(k, t, len(v), sum(v) / len(v), max(v)) for (k, t), v in kinds.items()]
    return sorted(rows, key=lambda row: -row[3])
