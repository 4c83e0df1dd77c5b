"""Inputs for pooling the rows of a sequence into one."""

from __future__ import annotations

import numpy as np

from ggml_py.types import F32, I32
from llama_py.batch import UBatch
from llama_py.graph.inputs.base import new_input, write
from llama_py.graph.params import GraphParams


class InputMean:
    """F32 [n_tokens, n_seqs]: 1 / length of the sequence for its tokens, else 0
    (llm_graph_input_mean)."""

    def __init__(self, params: GraphParams) -> None:
        self.mean = new_input("mean", F32, params.ubatch.n_tokens, params.ubatch.n_seqs_unq)

    def set_input(self, ubatch: UBatch) -> None:
        mean = np.zeros((ubatch.n_seqs_unq, ubatch.n_tokens), np.float32)
        for row, (_, tokens) in zip(mean, ubatch.by_seq(), strict=True):
            row[tokens] = np.float32(1) / np.float32(row[tokens].size)
        write(self.mean, mean)

    def can_reuse(self, params: GraphParams) -> bool:
        return self.mean.ne[:2] == (params.ubatch.n_tokens, params.ubatch.n_seqs_unq)


class InputCls:
    """I32 [n_seqs]: each sequence's first token, or its last (llm_graph_input_cls)."""

    def __init__(self, params: GraphParams, last: bool) -> None:
        self.last = last
        self.cls = new_input("cls", I32, params.ubatch.n_seqs_unq)

    def set_input(self, ubatch: UBatch) -> None:
        pos = ubatch.pos[: ubatch.n_tokens]
        rows = np.arange(ubatch.n_tokens)
        found = []
        for _, tokens in ubatch.by_seq():
            mine, at = rows[tokens], pos[tokens]
            if self.last:  # the later if positions are equal
                found.append(mine[at.size - 1 - int(np.argmax(at[::-1]))])
            else:
                found.append(mine[int(np.argmin(at))])
        write(self.cls, np.array(found, np.int32))

    def can_reuse(self, params: GraphParams) -> bool:
        return self.cls.ne[0] == params.ubatch.n_seqs_unq
