"""Intentional differences from llama.cpp."""

from __future__ import annotations

import copy

from ggml_py.inspection.dump import Record


def with_gates_along_keys(nodes: list[Record]) -> list[Record]:
    """Return llama.cpp's nodes with our layout of gates, the one intentional difference. For one
    token, llama.cpp's builder without the fused op has gates per channel as [1, S, ...]."""
    along: set[tuple[int, str]] = set()
    for node in (nodes := copy.deepcopy(nodes)):
        for t in (node, *node["src"]):
            gates = t["name"].startswith("g_in-") and t["name"].endswith(" (reshaped)")
            if t is node and node["op"] == "EXP":
                gates = (node["dec"], node["src"][0]["name"]) in along
            if (gates or (node["dec"], t["name"]) in along) and t["ne"][0] == 1:
                along.add((node["dec"], t["name"]))
                size = t["ne"][1]
                t["ne"][:2], t["nb"][1] = [size, 1], 4 * size
    return nodes
