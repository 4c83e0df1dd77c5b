"""Learned position embeddings: one table row is added to each token's embedding."""

from __future__ import annotations

from ggml_py.ops import add, get_rows
from ggml_py.tensor import Tensor
from llama_py.graph.builder import GraphBuilder
from llama_py.graph.inputs.tokens import PosLimit


class LearnedPositions:
    """weight [n_embd, n_ctx_train]; ContextError for a position beyond n_ctx_train."""

    def __init__(self, weight: Tensor) -> None:
        self.weight = weight

    def __call__(self, g: GraphBuilder, embd: Tensor) -> Tensor:
        """Add the rows of the tokens' positions: [n_embd, n_tokens] -> same shape."""
        g.add_input(PosLimit(self.weight.ne[1]))
        pos = g.cb(get_rows(self.weight, g.inp_pos), "pos_embd")
        return g.cb(add(embd, pos), "inpL")
