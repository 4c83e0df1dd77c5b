"""An engine of runs (`dev.record.golden.engines`) on that library, and its nodes in our form."""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import groupby

import numpy as np

from dev.record.golden.engines import LlamaCpp
from ggml_py.inspection.dump import Record
from llama_py.batch import Batch

NUMBERED = re.compile(r"\b(node|leaf)_(\d+)")


class Newest(LlamaCpp):
    """Engine of llama.cpp b11739; its node lists lack what that build has for mixed batches."""

    def run(self, batch: Batch, encode: bool = False) -> None:
        first = len(self.nodes)
        super().run(batch, encode)
        graphs = groupby(self.nodes[first:], lambda node: node["dec"])
        self.nodes[first:] = [n for _, graph in graphs for n in scaled(without_mixed([*graph]))]


def without_mixed(nodes: list[Record]) -> list[Record]:
    """Return a graph's nodes without those, never executed, by which batches that mix tokens and
    embeddings enter."""
    gone = [node for node in nodes if not node["flags"]]
    at = [node["i"] for node in gone]
    leaves = len({s["name"] for node in gone for s in node["src"] if "inp_mixed" in s["name"]})
    kept = [node for node in nodes if node["flags"]]
    return renumbered(kept, lambda n: n - sum(i < n for i in at), leaves)


def scaled(nodes: list[Record]) -> list[Record]:
    """Return nodes with the token scale of the Gemma family as one SCALE of `embd`, which is a MUL
    by an input here; each row's factor is the square root of its width."""
    if len(nodes) < 2 or "inp_scale_rows" not in [s["name"] for s in nodes[1]["src"]]:
        return nodes
    embd, scale, *rest = renumbered(nodes, lambda n: n, 1)
    factor = np.sqrt(np.float32(embd["ne"][0])).view(np.int32)
    source = {**scale["src"][0], "name": "embd"}
    scale = {**scale, "op": "SCALE", "params": [int(factor), *[0] * 15], "src": [source]}
    return [{**embd, "name": "embd"}, scale, *rest]


def renumbered(
    nodes: list[Record], number: Callable[[int], int], fewer_leaves: int
) -> list[Record]:
    """Return nodes with new indices, and new names where a name has an index or a leaf's."""

    def renamed(found: re.Match[str]) -> str:
        n = int(found[2])
        return f"{found[1]}_{n - fewer_leaves if found[1] == 'leaf' else number(n)}"

    def name(old: str) -> str:
        return NUMBERED.sub(renamed, old)

    return [
        {
            **node,
            **{key: name(node[key]) for key in ("name", "view_src")},
            "i": i,
            "src": [{**s, "name": name(s["name"])} for s in node["src"]],
        }
        for i, node in enumerate(nodes)
    ]
