"""The lightning indexer: small heads that choose the cells for attention
(models/deepseek32.cpp, llama-graph.cpp:build_attn of llm_graph_input_attn_k_dsa)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ggml_py._moved import former_names
from ggml_py.ops import (
    add,
    cont,
    fill,
    lightning_indexer,
    mul,
    mul_mat,
    permute,
    relu,
    reshape,
    scale,
    set_rows,
    sum_rows,
    top_k,
    view,
)
from ggml_py.tensor import Tensor
from ggml_py.types import F32, GGMLType
from llama_py.blocks.functions import inv_sqrt
from llama_py.blocks.rope import rope
from llama_py.graph.builder import GraphBuilder
from llama_py.hparams.variants import Variant
from llama_py.weights import Weights

LIGHTNING_INDEXER = Variant(
    "lightning_indexer",
    ("fused", "nodes"),
    "how keys are scored that attention may look at",
    go_back=("nodes",),
)


@dataclass(frozen=True, slots=True)
class IndexerHeads:
    """The heads of an indexer.

    size         dimensions of a head
    n_chosen     number of cells to choose per token
    rope_offset  the first dimension of a head that RoPE rotates
    rotated      multiply heads by a Hadamard matrix after RoPE
    """

    n_head: int
    size: int
    n_chosen: int
    rope_type: int
    rope_offset: int
    rotated: bool


class Indexer:
    """A key per token and queries of n_head heads, rotated by RoPE and then by a Hadamard matrix;
    a cell's score is the weighted sum of the positive parts of its products."""

    def __init__(
        self, w: Weights, n_embd: int, n_lora_q: int, heads: IndexerHeads, few_names: bool = False
    ) -> None:
        """Declare the weights; `n_lora_q`: rank of the query; `few_names`: do not name steps."""
        self.heads, self.few_names = heads, few_names
        self.n_head, self.size = n_head, size = heads.n_head, heads.size
        self.k_norm = w.norm("indexer.k_norm", size, kind="layer", bias="needed")
        self.proj = w.tensor("indexer.proj.weight", n_embd, n_head)
        self.attn_k = w.tensor("indexer.attn_k.weight", n_embd, size)
        self.attn_q_b = w.tensor("indexer.attn_q_b.weight", n_lora_q, n_head * size)

    def __call__(self, g: GraphBuilder, cur: Tensor, small: Tensor, il: int) -> Tensor:
        """Choose the n_chosen best cells of each token, in any order. cur [n_embd, n_tokens],
        small [n_lora_q, n_tokens] -> I32 [n_chosen, tokens of a stream, 1, n_stream]"""
        fused = g.form(LIGHTNING_INDEXER) == "fused"
        inp = g.inp_index(fused)
        q = self._step(g, g.mm(self.attn_q_b, small), "indexer_q", il)
        q = self._rotate(g, q, inp.k_rot, "indexer_q", il)
        k = self._step(g, g.mm(self.attn_k, cur), "indexer_k", il)
        k = self._step(g, self.k_norm(g, k, il=il), "indexer_k", il)
        k = self._rotate(g, k, inp.k_rot, "indexer_k", il)
        g.expand(inp.mctx.cpy_k(k, inp.k_idxs, il))
        weights = self._step(g, g.mm(self.proj, cur), "indexer_weights", il)
        k = inp.mctx.get_k(il)  # [size, 1, n_kv, n_stream]
        n_stream, row = k.ne[3], self.size * self.n_head
        n = g.n_tokens // n_stream
        q = view(q, (self.size, self.n_head, n, n_stream), (self.size, row, row * n))
        strides = (self.n_head, self.n_head * n, self.n_head * n)
        weights = view(weights, (self.n_head, n, 1, n_stream), strides)
        weights = self._step(g, scale(weights, inv_sqrt(row)), "indexer_weights", il)
        if fused:
            scores = lightning_indexer(q, k, weights, inp.kq_mask)
            g.mark_fused(LIGHTNING_INDEXER.kind, g.cb(scores, "indexer_score", il))
        else:
            scores = self._scores(g, q, k, weights, inp.kq_mask, il)
        return g.cb(cont(top_k(scores, min(scores.ne[0], self.heads.n_chosen))), "top_k", il)

    def _rotate(self, g: GraphBuilder, x: Tensor, rot: Tensor | None, name: str, il: int) -> Tensor:
        """[size * H, n_tokens] -> [size, H, n_tokens]"""
        x = reshape(x, self.size, x.ne[0] // self.size, g.n_tokens)
        x = g.cb(rope(g, x, il, type=self.heads.rope_type, offset=self.heads.rope_offset), name, il)
        if not self.heads.rotated:
            return x
        assert rot is not None
        return g.cb(mul_mat(rot, x), name, il)

    def _step(self, g: GraphBuilder, x: Tensor, name: str, il: int) -> Tensor:
        return x if self.few_names else g.cb(x, name, il)

    def _scores(
        self, g: GraphBuilder, q: Tensor, k: Tensor, weights: Tensor, mask: Tensor, il: int
    ) -> Tensor:
        """Compute index scores without the fused op: [n_kv, T, 1, B].
        q [size, H, T, B], k [size, 1, n_kv, B], weights [H, T, 1, B], mask [n_kv, T, 1, B]"""
        q = self._step(g, permute(q, 0, 2, 1, 3), "indexer_q", il)
        k = self._step(g, permute(k, 0, 2, 1, 3), "indexer_k", il)
        kq = self._step(g, mul_mat(k, q), "indexer_kq", il)  # [n_kv, T, H, B]
        kq = self._step(g, cont(permute(kq, 2, 1, 0, 3)), "indexer_kq", il)
        x = self._step(g, relu(kq), "indexer_score", il)
        x = self._step(g, mul(x, weights), "indexer_score", il)
        x = self._step(g, sum_rows(x), "indexer_score", il)
        x = self._step(g, cont(permute(x, 2, 1, 0, 3)), "indexer_score", il)
        return g.cb(add(x, mask), "indexer_score", il)


def mask_unchosen(mask: Tensor, chosen: Tensor, of: GGMLType = F32) -> Tensor:
    """Restrict a mask to the chosen cells: others become -inf.

    mask [n_kv, T, 1, B], chosen I32 [n_chosen, T, 1, B] -> like mask
    of  type of the values for chosen cells
    """
    n_kv, n, _, n_stream = mask.ne
    hidden = view(fill(mask, -math.inf), (1, n_kv, n, n_stream), (1, n_kv, n_kv * n))
    n_chosen = chosen.ne[0]
    ids = view(chosen, (n_chosen, n, n_stream, 1), (n_chosen, n_chosen * n, chosen.n_elements))
    shown = fill(Tensor(of, (1, n_chosen, n, n_stream)), 0.0)
    rows = set_rows(hidden, shown, ids)
    return add(view(rows, (n_kv, n, 1, n_stream), (n_kv, n_kv * n, n_kv * n)), mask)


if not TYPE_CHECKING:
    __getattr__ = former_names(__name__, only="mask_unchosen")
