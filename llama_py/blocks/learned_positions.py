"""Positions: a row of a table is added to each token's embedding."""

from __future__ import annotations

from ggml_py.ops import add, get_rows
from ggml_py.tensor import Tensor
from llama_py.graph.builder import GraphBuilder
from llama_py.graph.inputs.tokens import PosLimit
from llama_py.hparams import HParams
from llama_py.weights import Weights


class LearnedPositions:
    """weight [n_embd, n_ctx_train]; ContextError for a position behind its end."""

    def __init__(self, w: Weights, hp: HParams) -> None:
        self.weight = w.tensor("position_embd.weight", hp.n_embd, hp.n_ctx_train)

    def __call__(self, g: GraphBuilder, embd: Tensor) -> Tensor:
        """[n_embd, n_tokens] -> the same"""
        g.add_input(PosLimit(self.weight.ne[1]))
        pos = g.cb(get_rows(self.weight, g.inp_pos), "pos_embd")
        return g.cb(add(embd, pos), "inpL")
