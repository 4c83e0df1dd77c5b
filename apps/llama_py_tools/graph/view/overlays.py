"""Overlays: node values from other programs, such as times or differences.

An overlay file has one JSON line per node, like `llama-py-graph dump --format json` writes it. A
line has `dec`, `name`, optionally `i`, and `overlay: {"error": 1e-3}`. Lines without an
overlay are skipped, and other keys are ignored.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence

from ggml_py.errors import GGMLError
from ggml_py.inspection.dump import Record
from ggml_py.tensor import Tensor
from llama_py_tools.graph.view.seen import GraphRecord, Overlay


def put(graphs: Sequence[GraphRecord], records: Sequence[Record], path: str) -> None:
    """Add the overlays in a file's lines to the nodes.

    A line applies to the node with its number if the name matches. Otherwise it applies to the next
    node of that name. Raises GGMLError if an overlay has values other than numbers, or if no line
    matches a node.
    """
    lines = [r for r in records if r.get("overlay") is not None]
    numbers: list[dict[str, list[int]]] = []
    for seen in graphs:
        by_name: defaultdict[str, list[int]] = defaultdict(list)
        for i, t in enumerate(seen.graph.nodes):
            by_name[t.name].append(i)
        numbers.append(by_name)
    n_found = 0
    for r in lines:
        overlay, dec = _check_overlay(r, path), r["dec"]
        if not 0 <= dec < len(graphs):
            continue
        at = _find_number(r, graphs[dec].graph.nodes, numbers[dec])
        if at is not None:
            graphs[dec].overlays.setdefault(at, {}).update(overlay)
            n_found += 1
    if not n_found:
        raise GGMLError(
            f"{path}: the {len(lines)} lines with an overlay match no node of these graphs; "
            "create it with the same model and tokens"
        )


def _find_number(r: Record, nodes: Sequence[Tensor], by_name: dict[str, list[int]]) -> int | None:
    i = r.get("i")
    if isinstance(i, int) and 0 <= i < len(nodes) and nodes[i].name == r["name"]:
        return i
    waiting = by_name.get(r["name"], [])
    return waiting.pop(0) if waiting else None


def _check_overlay(record: Record, path: str) -> Overlay:
    found = record["overlay"]
    good = isinstance(found, dict) and all(
        isinstance(v, int | float) and not isinstance(v, bool) for v in found.values()
    )
    if not good:
        raise GGMLError(
            f"{path}: overlay of {record['name']!r} must be numbers by name, such as "
            f'{{"error": 0.001}}, got {found!r:.80}'
        )
    return {name: float(value) for name, value in found.items()}


def number(value: float) -> float | str:
    """Return a number for strict JSON; values that are not finite become strings."""
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else ("Infinity" if value > 0 else "-Infinity")
