"""An engine of runs (`dev.record.golden.engines`) with the newest llama.cpp."""

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
    """Engine of llama.cpp b11739. Its node lists have the form of llama.cpp 0.5.0."""

    def run(self, batch: Batch, encode: bool = False) -> None:
        first = len(self.nodes)
        super().run(batch, encode)
        graphs = groupby(self.nodes[first:], lambda node: node["dec"])
        self.nodes[first:] = [n for _, graph in graphs for n in scale_tokens(drop_mixed([*graph]))]


def drop_mixed(nodes: list[Record]) -> list[Record]:
    """Drop a graph's unused nodes, the input of batches that mix tokens and embeddings."""
    gone = [node for node in nodes if not node["flags"]]
    at = [node["i"] for node in gone]
    leaves = len({s["name"] for node in gone for s in node["src"] if "inp_mixed" in s["name"]})
    kept = [node for node in nodes if node["flags"]]
    return renumber(kept, lambda n: n - sum(i < n for i in at), leaves)


def scale_tokens(nodes: list[Record]) -> list[Record]:
    """Replace a MUL of the tokens by an input with a SCALE of `embd`. The input has the square
    root of the embedding size."""
    if len(nodes) < 2 or "inp_scale_rows" not in [s["name"] for s in nodes[1]["src"]]:
        return nodes
    embd, scale, *rest = renumber(nodes, lambda n: n, 1)
    factor = np.sqrt(np.float32(embd["ne"][0])).view(np.int32)
    source = {**scale["src"][0], "name": "embd"}
    scale = {**scale, "op": "SCALE", "params": [int(factor), *[0] * 15], "src": [source]}
    return [{**embd, "name": "embd"}, scale, *rest]


def renumber(nodes: list[Record], number: Callable[[int], int], fewer_leaves: int) -> list[Record]:
    """Number the nodes again. The number of a node or leaf can be part of a name."""

    def new_number(found: re.Match[str]) -> str:
        n = int(found[2])
        return f"{found[1]}_{n - fewer_leaves if found[1] == 'leaf' else number(n)}"

    def name(old: str) -> str:
        return NUMBERED.sub(new_number, old)

    return [
        {
            **node,
            **{key: name(node[key]) for key in ("name", "view_src")},
            "i": i,
            "src": [{**s, "name": name(s["name"])} for s in node["src"]],
        }
        for i, node in enumerate(nodes)
    ]
