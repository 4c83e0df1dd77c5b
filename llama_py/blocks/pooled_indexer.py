"""An indexer that chooses blocks of positions by the mean of their keys (models/qwen4exp.cpp:
build_qsa_top_k)."""

from __future__ import annotations

from ggml_py.ops import (
    add,
    cast,
    cont,
    get_rows,
    mul_mat,
    permute,
    relu,
    reshape,
    scale,
    top_k,
    view,
    view_3d,
)
from ggml_py.tensor import Tensor
from ggml_py.types import F32
from llama_py.blocks.rope import rope
from llama_py.graph.builder import GraphBuilder
from llama_py.graph.inputs.pooled_blocks import InputPooledBlocks
from llama_py.weights import Weights


class PooledIndexer:
    """Keys are cached unchanged; the keys of a block are averaged, normed, and rotated by the first
    position. A block's score is the sum of the positive parts of its products with the heads of a
    token's query. A token attends to the cells of the best blocks, and to cells after the last
    complete block."""

    def __init__(
        self, w: Weights, *, n_embd: int, n_head: int, size: int, n_chosen: int, n_pooled: int
    ) -> None:
        """size: of a head; n_chosen: cells of the best blocks; n_pooled: positions of a block"""
        self.n_head, self.size, self.n_chosen, self.n_pooled = n_head, size, n_chosen, n_pooled
        self.q_proj = w.linear("indexer.q_proj", n_embd, n_head * size, scaled=False)
        self.k_proj = w.linear("indexer.k_proj", n_embd, size, scaled=False)
        self.q_norm, self.k_norm = w.norm("indexer.q_norm", size), w.norm("indexer.k_norm", size)

    def __call__(self, g: GraphBuilder, cur: Tensor, il: int) -> Tensor:
        """Choose cells for cur [n_embd, n_tokens], in any order.
        -> I32 [n_chosen + n_pooled - 1, tokens of a stream, 1, n_stream]"""
        inp = g.shared(
            f"blocks of {self.n_pooled}",
            lambda: g.add_input(InputPooledBlocks(g.params, self.n_pooled)),
        )
        k = g.cb(reshape(self.k_proj(g, cur), self.size, 1, g.n_tokens), "indexer_k_raw", il)
        g.expand(inp.mctx.cpy_k(k, inp.k_idxs, il))
        k = self._pool_keys(g, inp, il)  # [size, n_blocks, n_stream]
        q = reshape(self.q_proj(g, cur), self.size, self.n_head, g.n_tokens)
        q = g.cb(rope(g, self.q_norm(g, q, il=il), il), "indexer_q", il)
        scores = add(self._scores(g, inp, q, k, il), inp.bias)
        scores = self._of_cells(scores, inp.cell_blk)  # [n_kv, n, n_stream]
        mask = g.inp_attn(il).kq_mask
        mask = mask if mask.type is F32 else cast(mask, F32)
        scores = g.cb(add(scores, reshape(mask, *scores.ne[:3])), "indexer_score_tokens", il)
        n_chosen = min(inp.n_kv, self.n_chosen + self.n_pooled - 1)
        chosen = cont(top_k(scores, n_chosen))
        return g.cb(reshape(chosen, n_chosen, inp.n, 1, inp.n_stream), "indexer_top_k", il)

    def _pool_keys(self, g: GraphBuilder, inp: InputPooledBlocks, il: int) -> Tensor:
        """Average the keys of each block. -> [size, n_blocks, n_stream]"""
        size, n, n_blocks, n_stream = self.size, self.n_pooled, inp.n_blocks, inp.n_stream
        k = inp.mctx.get_k(il)  # [size, 1, n_kv, n_stream]
        k = view_3d(k, size, inp.n_kv, n_stream, *k.nb[2:], 0)
        k = reshape(get_rows(k, inp.blk_cells), size, n, n_blocks, n_stream)
        total: Tensor | None = None
        for i in range(n):
            one = view(k, (size, n_blocks, n_stream), (n * size, n * size * n_blocks), i * size)
            total = cont(one) if total is None else add(total, cont(one))
        assert total is not None
        k = g.cb(scale(total, 1.0 / n), "indexer_k_pooled", il)
        k = self.k_norm(g, reshape(k, size, n_blocks * n_stream, 1), il=il)
        k = rope(g, reshape(k, size, 1, n_blocks * n_stream), il, pos=inp.blk_pos)
        return g.cb(reshape(k, size, n_blocks, n_stream), "indexer_k", il)

    def _scores(
        self, g: GraphBuilder, inp: InputPooledBlocks, q: Tensor, k: Tensor, il: int
    ) -> Tensor:
        """Score blocks: q [size, n_head, n_tokens], k [size, n_blocks, n_stream] -> [n_blocks, n,
        n_stream]."""
        n_head, n, n_blocks, n_stream = self.n_head, inp.n, inp.n_blocks, inp.n_stream
        kq = mul_mat(k, reshape(q, self.size, n_head * n, n_stream))
        kq = relu(reshape(kq, n_blocks, n_head, n, n_stream))
        total: Tensor | None = None
        strides = (n_blocks * n_head, n_blocks * n_head * n)
        for h in range(n_head):
            one = view(kq, (n_blocks, n, n_stream), strides, h * n_blocks)
            total = cont(one) if total is None else add(total, one)
        assert total is not None
        return g.cb(total, "indexer_score", il)

    def _of_cells(self, scores: Tensor, cell_blk: Tensor) -> Tensor:
        """Give each cell the score of its block: [n_blocks, n, n_stream] -> [n_kv, n, n_stream]."""
        scores = get_rows(cont(permute(scores, 1, 0, 2, 3)), cell_blk)
        return cont(permute(scores, 1, 0, 2, 3))
