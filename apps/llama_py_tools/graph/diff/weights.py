"""Errors of nodes grouped by weight, for two files with different weights."""

from __future__ import annotations

import re
from collections.abc import Sequence

from llama_py_tools.graph.diff.found import RunComparison, SharedNode

SAME = 1e-9  # maximum NMSE of nodes with equal weights
Hurt = tuple[str, str, SharedNode]  # weight, types, a node that reads it


def sort_weight_errors(found: RunComparison) -> list[Hurt]:
    """Return errors of nodes by the weights that differ in the other run, the largest first."""
    hurt: list[Hurt] = []
    for n in found.nodes if found.other_weights else ():
        for name, ours, theirs in found.list_weights(n) if n.made is not None else ():
            assert n.made is not None
            if ours != theirs:
                hurt.append((name, f"{theirs} -> {ours}", n))
            elif n.made.nmse > SAME:
                hurt.append((name, ours, n))
    return sorted(hurt, key=lambda h: -h[2].made.nmse if h[2].made else 0.0)


def group_weight_errors(hurt: Sequence[Hurt]) -> list[tuple[str, str, int, float, float]]:
    """Return name without layer, types, count, mean and largest error; the largest mean first."""
    kinds: dict[tuple[str, str], list[float]] = {}
    for name, types, node in hurt:
        assert node.made is not None
        kind = re.sub(r"^blk\.\d+\.", "", name)
        kinds.setdefault((kind, types), []).append(node.made.nmse)
    rows = [(k, t, len(v), sum(v) / len(v), max(v)) for (k, t), v in kinds.items()]
    return sorted(rows, key=lambda row: -row[3])
