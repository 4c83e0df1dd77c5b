"""An indexer that chooses blocks of positions by the mean of their keys, in the form of llama.cpp
b11739 (build_qsa_sel): the keys of blocks are cached."""

from __future__ import annotations

from dataclasses import dataclass

from ggml_py.ops import (
    add,
    cast,
    clamp,
    concat,
    cont,
    cumsum,
    fill,
    get_rows,
    lightning_indexer,
    mul,
    repeat_4d,
    reshape,
    scale,
    set_rows,
    sub,
    top_k,
    view,
)
from ggml_py.tensor import Tensor
from ggml_py.types import F32, I32
from llama_py.blocks.functions import inv_sqrt
from llama_py.blocks.indexer import LIGHTNING_INDEXER
from llama_py.blocks.kpool_indexer import column, mask_with_cells, new_rows, score_pools
from llama_py.blocks.pooled_indexer import PooledIndexer
from llama_py.blocks.rope import rope
from llama_py.graph.builder import GraphBuilder
from llama_py.graph.inputs.kpool import InputKPool, kpool_context


@dataclass(frozen=True, slots=True)
class BlockChoice:
    """Cells that an indexer has chosen.

    cells   I32 [n_sel, T] of the best blocks, then the cells after the last block
    best    I32 [n_top, T] the blocks
    scores  F32 [n_pool, T] of all blocks; -inf for invisible blocks
    """

    inp: InputKPool
    cells: Tensor
    best: Tensor
    scores: Tensor

    def mask(self, mask: Tensor) -> Tensor:
        """Restrict a mask [n_kv, n, 1, n_stream] to the cells. -> like mask"""
        n_sel, n_tokens = self.cells.ne[:2]
        zeros = column(mask.type, 0.0, n_sel, n_tokens)
        return mask_with_cells(mask, self._separate_unused(), zeros)

    def _separate_unused(self) -> Tensor:
        """Give unused cells separate numbers from n_kv on. -> I32 [n_sel, T]"""
        cells, n_kv = cast(self.cells, F32), self.inp.n_kv
        live = self._mark_live()
        own = scale(cumsum(fill(live, 1.0)), 1.0, n_kv - 1.0)
        return cast(add(mul(sub(cells, own), live), own), I32)

    def _mark_live(self) -> Tensor:
        """Return 1 for chosen cells, 0 for the unused rest: [n_sel, T]."""
        inp, (n_pool, n_tokens) = self.inp, self.scores.ne[:2]
        of_best = get_rows(reshape(self.scores, 1, n_pool, n_tokens), self.best)
        seen = clamp(scale(of_best, 1.0, 1.0), 0.0, 1.0)
        seen = repeat_4d(seen, inp.size, inp.n_top, n_tokens, 1)
        tails = clamp(scale(cast(inp.tails, F32), -1.0, float(inp.n_kv)), 0.0, 1.0)
        return concat(reshape(seen, inp.size * inp.n_top, n_tokens), tails, 0)


class MeanPoolIndexer(PooledIndexer):
    """Keys are cached unchanged, next to the keys of blocks: averaged, normed, and rotated by the
    first position. A token attends to all cells of the best blocks and to cells after the last
    complete block."""

    def inputs(self, g: GraphBuilder) -> InputKPool:
        def make() -> InputKPool:
            fused = g.form(LIGHTNING_INDEXER) == "fused"
            inp = InputKPool(g.params, self.n_chosen // self.n_pooled, fused)
            for t in (inp.cells, inp.members, inp.mask, inp.tails):
                g.expand(t)
            g.add_input(inp)
            return inp

        return g.shared("pools", make)

    def choose(self, g: GraphBuilder, cur: Tensor, il: int) -> BlockChoice:
        """Choose cells for cur [n_embd, T]."""
        inp = self.inputs(g)
        self._store(g, cur, inp, il)
        keys = self._keys(g, inp, il)
        q = reshape(self.q_proj(g, cur), self.size, self.n_head, g.n_tokens)
        q = g.cb(rope(g, self.q_norm(g, q, il=il), il), "indexer_q", il)
        weights = fill(Tensor(F32, (self.n_head, g.n_tokens)), inv_sqrt(self.size))
        if g.form(LIGHTNING_INDEXER) == "fused":
            scores = lightning_indexer(q, keys, weights, inp.mask)
            g.mark_fused(LIGHTNING_INDEXER.kind, scores)
        else:
            scores = score_pools(q, keys, weights, inp.mask)
        g.cb(scores, "indexer_score", il)
        best = g.cb(top_k(scores, inp.n_top), "indexer_top_k", il)
        cells = get_rows(inp.members, reshape(best, inp.n_top * g.n_tokens))
        cells = reshape(cells, inp.size * inp.n_top, g.n_tokens)
        return BlockChoice(inp, g.expand(concat(cells, inp.tails, 0)), best, scores)

    def _store(self, g: GraphBuilder, cur: Tensor, inp: InputKPool, il: int) -> None:
        """Store each token's key, and reserve space for a block's key."""
        size, n_tokens = self.size, g.n_tokens
        key = g.cb(self.k_proj(g, cur), "indexer_k_raw", il)
        row = concat(key, fill(Tensor(F32, (size, n_tokens)), 0.0), 0)
        row = reshape(row, 2 * size, 1, n_tokens)
        g.expand(kpool_context(g.params).cpy_k(row, inp.k_idxs, il))

    def _keys(self, g: GraphBuilder, inp: InputKPool, il: int) -> Tensor:
        """Compute the keys of new blocks and return the keys of all blocks, [size, 1, n_pool]."""
        size, n, n_new, mctx = self.size, self.n_pooled, inp.n_new, kpool_context(g.params)
        stored = mctx.get_k_rows(il, size, size)
        rows = get_rows(mctx.get_k_rows(il, size), new_rows(g, inp))
        rows = reshape(rows, size, n, n_new)
        each = [view(rows, (size, n_new), (size * n,), i * size) for i in range(n)]
        total = cont(each[0])
        for one in each[1:]:
            total = add(total, one)
        new = self.k_norm(g, scale(total, 1.0 / n), il=il)
        new = rope(g, reshape(new, size, 1, n_new), il, pos=inp.new_pos)
        new = g.cb(reshape(new, size, n_new), "indexer_pool_k_new", il)
        if inp.new_rows is not None:
            g.expand(set_rows(stored, new, inp.new_rows))
            every = get_rows(stored, inp.cells)
        else:
            every = concat(new, fill(Tensor(F32, (size, inp.n_pool - n_new)), 0.0), 1)
        return g.cb(reshape(every, size, 1, inp.n_pool), "indexer_k", il)
