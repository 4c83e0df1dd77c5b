"""An engine of runs (`dev.record.golden.engines`) with the newest llama.cpp."""

from __future__ import annotations

import re
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np

from dev.record.golden.engines import LlamaCpp
from dev.record.newest.extended import is_extended, run_extended
from dev.record.newest.states import split_states
from ggml_py.inspection.dump import Record
from llama_py.batch import Batch

NUMBERED = re.compile(r"\b(node|leaf)_(\d+)")


class Newest(LlamaCpp):
    """Engine of llama.cpp b11739. Its node lists have the form of llama.cpp 0.5.0."""

    def __init__(self, path: Path, *, pooling: str = "", **how: Any) -> None:
        super().__init__(path, pooling=pooling, **how)
        self._embeddings, self._extended = bool(pooling), False

    def run(self, batch: Batch, encode: bool = False) -> None:
        first = len(self.nodes)
        if self._recorder and is_extended(batch) != self._extended:
            self._recorder.next_graph()
        self._extended = is_extended(batch)
        if self._extended:
            reads = encode or not self.api.llama_model_has_decoder(self.model)
            run_extended(self.api, self.ctx, batch, reads, self._embeddings)
        else:
            super().run(batch, encode)
        graphs = groupby(self.nodes[first:], lambda node: node["dec"])
        self.nodes[first:] = [node for _, graph in graphs for node in to_former_graph([*graph])]


def to_former_graph(nodes: list[Record]) -> list[Record]:
    """Return a graph's nodes in the form of llama.cpp 0.5.0. Drop the unused nodes, the input of
    batches that mix tokens and embeddings."""
    unused = [s["name"] for node in nodes if not node["flags"] for s in node["src"]]
    n_leaves = len({name for name in unused if "inp_mixed" in name})
    first = count_inputs(nodes, "inp_mixed")
    kept = split_states([node for node in nodes if node["flags"]])
    return scale_tokens(renumber(kept, n_leaves, first))


def count_inputs(nodes: list[Record], word: str) -> int:
    """Return the number of inputs and weights before the first one with this word in its name."""
    made, inputs = set[str](), set[str]()
    for node in nodes:
        for name in (s["name"] for s in node["src"]):
            if word in name:
                return len(inputs)
            if name not in made:
                inputs.add(name)
        made.add(node["name"])
    return 0


def scale_tokens(nodes: list[Record]) -> list[Record]:
    """Replace a MUL of the tokens by an input with a SCALE of `embd`. The input has the square
    root of the embedding size."""
    if len(nodes) < 2 or "inp_scale_rows" not in [s["name"] for s in nodes[1]["src"]]:
        return nodes
    embd, scale, *rest = renumber(nodes, 1)
    factor = np.sqrt(np.float32(embd["ne"][0])).view(np.int32)
    source = {**scale["src"][0], "name": "embd"}
    scale = {**scale, "op": "SCALE", "params": [int(factor), *[0] * 15], "src": [source]}
    return [{**embd, "name": "embd"}, scale, *rest]


def renumber(nodes: list[Record], fewer_leaves: int, first: int = 0) -> list[Record]:
    """Number the nodes again. Subtract `fewer_leaves` from numbers of inputs, from `first` on. The
    number of a node or leaf can be part of a name."""
    new = {node["i"]: i for i, node in enumerate(nodes)}

    def new_number(found: re.Match[str]) -> str:
        n = int(found[2])
        if found[1] == "node":
            return f"node_{new[n]}"
        return f"leaf_{n - fewer_leaves if n >= first else n}"

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
