"""Decoders some of whose layers keep a state in place of keys and values: those without key heads
(the part that models/granite-hybrid.cpp, jamba.cpp and lfm2.cpp have in common)."""

from __future__ import annotations

from dataclasses import dataclass

from ggml_py.ops import add
from ggml_py.tensor import Tensor
from llama_py.graph.builder import GraphBuilder
from llama_py.hparams import HParams
from llama_py.linear import Norm
from llama_py.models._decoder import Block


class MixedHParams(HParams):
    """Layers without key heads are recurrent."""

    def is_recr(self, il: int) -> bool:
        return il < self.n_layer and self.n_head_kv[il] == 0


@dataclass(slots=True)
class OperatorLayer:
    """x + operator(norm(x)), then x + feed_forward(norm(x)).

    name      what the operator's result is called
    ffn_name  what the feed-forward's input is called in the end
    """

    norm: Norm
    operator: Block
    ffn_norm: Norm
    feed_forward: Block
    name: str = ""
    ffn_name: str = ""

    def __call__(self, g: GraphBuilder, cur: Tensor, il: int, last: bool) -> Tensor:
        residual = cur
        cur = self.operator(g, self.norm(g, cur, "attn_norm", il), il)
        if last:  # only outputs go on
            cur, residual = g.outputs(cur, residual)
        if self.name:
            g.cb(cur, self.name, il)
        cur = add(residual, cur)
        normed = self.ffn_norm(g, cur, "ffn_norm", il)
        fed = self.feed_forward(g, normed, il)
        if self.ffn_name:
            g.cb(normed, self.ffn_name, il)
        return add(cur, fed)
