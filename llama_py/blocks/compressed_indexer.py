"""Lightning indexer with compressed keys, at the ratio of the keys that it chooses
(models/deepseek4.cpp:build_lid_top_k)."""

from __future__ import annotations

from ggml_py.ops import (
    add,
    cont,
    lightning_indexer,
    mul,
    mul_mat,
    permute,
    relu,
    reshape,
    scale,
    sum_rows,
    top_k,
    view,
)
from ggml_py.tensor import Tensor
from llama_py.blocks.compressor import Compressor, inp_compressed
from llama_py.blocks.functions import inv_sqrt
from llama_py.blocks.indexer import LIGHTNING_INDEXER
from llama_py.blocks.last_channels import Turn
from llama_py.graph.builder import GraphBuilder
from llama_py.graph.inputs.compressed import InputCompressed
from llama_py.memory.kv_rot import rotate
from llama_py.memory.specs import CompressedSpec
from llama_py.weights import Weights


class CompressedIndexer:
    """Queries of n_head heads, rotated by RoPE and then by a Hadamard matrix; a key's score is
    the weighted sum of the positive parts of its products."""

    def __init__(
        self,
        w: Weights,
        *,
        n_embd: int,
        n_lora_q: int,
        n_head: int,
        kept: CompressedSpec,
        n_chosen: int,
    ) -> None:
        """Declare the weights; `n_lora_q`: rank of the query; `kept`: memory of index keys."""
        self.n_head, self.size, self.n_chosen, self.kept = n_head, kept.n_embd_head, n_chosen, kept
        self.proj = w.linear("indexer.proj", n_embd, n_head, scaled=False)
        self.attn_q_b = w.linear("indexer.attn_q_b", n_lora_q, n_head * self.size, scaled=False)
        self.compressor = Compressor(w, n_embd, kept, "indexer_compressor")

    def compress(self, g: GraphBuilder, cur: Tensor, turn: Turn, il: int) -> None:
        """Make the keys that are complete."""
        inp, made = self._inp(g), self.compressor
        made.store(g, made.state(g, cur, inp, il), inp, turn, il)

    def _inp(self, g: GraphBuilder) -> InputCompressed:
        return inp_compressed(g, self.kept.kind, g.form(LIGHTNING_INDEXER) == "fused")

    def choose(self, g: GraphBuilder, cur: Tensor, small: Tensor, turn: Turn, il: int) -> Tensor:
        """Choose the n_chosen best keys of each token, in any order. cur [n_embd, n_tokens],
        small [n_lora_q, n_tokens] -> I32 [n_chosen, tokens of a sequence, 1, sequences]"""
        inp, kind = self._inp(g), self.kept.kind
        q = reshape(self.attn_q_b(g, small), self.size, self.n_head, g.n_tokens)
        q = g.cb(turn(g.cb(q, f"{kind}_q", il), g.inp_pos), f"{kind}_q_rope", il)
        assert inp.k_rot is not None
        q = g.cb(rotate(q, inp.k_rot), f"{kind}_q_rot", il)
        weights = scale(self.proj(g, cur), inv_sqrt(self.size * self.n_head))
        g.cb(weights, f"{kind}_weights", il)
        k = g.cb(inp.get_k(il, g.ubatch), f"{kind}_k", il)
        n_stream, row = k.ne[3], self.size * self.n_head
        n = g.n_tokens // n_stream
        q = view(q, (self.size, self.n_head, n, n_stream), (self.size, row, row * n))
        strides = (self.n_head, self.n_head * n, self.n_head * n)
        weights = view(weights, (self.n_head, n, 1, n_stream), strides)
        if g.form(LIGHTNING_INDEXER) == "fused":
            scores = lightning_indexer(q, k, weights, inp.kq_mask)
            g.mark_fused(LIGHTNING_INDEXER.kind, scores)
        else:
            scores = self._scores(g, q, k, weights, inp.kq_mask, il)
        g.cb(scores, f"{kind}_score_masked", il)
        best = cont(top_k(scores, min(scores.ne[0], self.n_chosen)))
        return g.cb(best, f"{kind}_top_k", il)

    def _scores(
        self, g: GraphBuilder, q: Tensor, k: Tensor, weights: Tensor, mask: Tensor, il: int
    ) -> Tensor:
        """Compute index scores without the fused op: [n_kv, T, 1, B].
        q [size, H, T, B], k [size, 1, n_kv, B], weights [H, T, 1, B], mask [n_kv, T, 1, B]"""
        kind = self.kept.kind
        q = g.cb(permute(q, 0, 2, 1, 3), f"{kind}_q", il)
        k = g.cb(permute(k, 0, 2, 1, 3), f"{kind}_k", il)
        kq = g.cb(mul_mat(k, q), f"{kind}_kq", il)
        kq = g.cb(cont(permute(kq, 2, 1, 0, 3)), f"{kind}_kq", il)  # [H, T, n_kv, B]
        x = cont(permute(sum_rows(mul(relu(kq), weights)), 2, 1, 0, 3))
        return add(g.cb(x, f"{kind}_score", il), mask)
