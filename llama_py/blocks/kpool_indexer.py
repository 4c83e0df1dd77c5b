"""Indexer that chooses pools of neighboring tokens (models/glm5-next.cpp:build_kpool_select)."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ggml_py.ops import (
    add,
    arange,
    argsort,
    cast,
    concat,
    cont,
    exp,
    fill,
    get_rows,
    lightning_indexer,
    mul,
    mul_mat,
    permute,
    relu,
    repeat_4d,
    reshape,
    scale,
    set_rows,
    soft_max,
    sub,
    sum_rows,
    top_k,
    view,
)
from ggml_py.tensor import Tensor
from ggml_py.types import F32, I32, GGMLType
from llama_py.blocks.functions import inv_sqrt
from llama_py.blocks.indexer import LIGHTNING_INDEXER
from llama_py.graph.builder import GraphBuilder
from llama_py.graph.inputs.kpool import InputKPool, kpool_context
from llama_py.hparams.variants import Variant
from llama_py.weights import Weights

POOL_ATTENTION = Variant(
    "pool_attention",
    ("masked", "gathered"),
    "whether a mask hides cells that are not chosen, or small ubatches read the chosen cells only",
    go_back=("gathered",),
)


@dataclass(frozen=True, slots=True)
class PoolSizes:
    """n_head, size  query heads, and their dimensions; pool  tokens of a pool
    n_chosen  number of tokens to choose, in whole pools"""

    n_head: int
    size: int
    pool: int
    n_chosen: int


class KPoolIndexer:
    """A key and a gate per token; the key of a pool is the sum of its tokens' keys, weighed per
    dimension by a softmax of their gates. A row of the cache has all three."""

    def __init__(
        self, w: Weights, n_embd: int, n_lora_q: int, n: PoolSizes, drafts: bool = False
    ) -> None:
        """Declare the weights; `n_lora_q`: rank of the query projection; drafts: of a NextN layer,
        which always has the first form of POOL_ATTENTION."""
        self.n, self.drafts = n, drafts
        self.k_norm = w.norm("indexer.k_norm", n.size, kind="layer", bias="needed")
        self.proj = w.tensor("indexer.proj.weight", n_embd, n.n_head)
        self.attn_k = w.tensor("indexer.attn_k.weight", n_embd, n.size)
        self.attn_q_b = w.tensor("indexer.attn_q_b.weight", n_lora_q, n.n_head * n.size)
        self.gate = w.tensor("indexer_compressor_gate.weight", n_embd, n.size)
        self.ape = w.tensor("indexer_compressor_ape.weight", n.size, n.pool)

    def inputs(self, g: GraphBuilder) -> InputKPool:
        def make() -> InputKPool:
            n, fused = self.n, g.form(LIGHTNING_INDEXER) == "fused"
            masks = self.drafts or g.form(POOL_ATTENTION) == "masked"
            inp = InputKPool(g.params, n.n_chosen // n.pool, fused, masks)
            for t in (inp.cells, inp.members, inp.mask, inp.tails, inp.live):
                g.expand(t)
            g.add_input(inp)
            return inp

        return g.shared("pools", make)

    def __call__(
        self, g: GraphBuilder, cur: Tensor, small: Tensor, kq_mask: Tensor, il: int
    ) -> Tensor:
        """Choose cells for cur [n_embd, T], small [n_lora_q, T]. -> I32 [n_sel, T] if cells are
        gathered, else a mask like kq_mask, as [n_kv, T]"""
        inp = self.inputs(g)
        chosen = self.cells(g, cur, small, il)
        if inp.gathers:
            return g.cb(chosen, "indexer_sel_idx", il)
        return g.cb(_mask_unchosen(kq_mask, chosen, inp), "indexer_sel", il)

    def cells(self, g: GraphBuilder, cur: Tensor, small: Tensor, il: int) -> Tensor:
        """Choose cells for cur [n_embd, T], small [n_lora_q, T]. -> I32 [n_sel, T]"""
        n, inp = self.n, self.inputs(g)
        q = reshape(g.mm(self.attn_q_b, small), n.size, n.n_head, g.n_tokens)
        g.cb(q, "indexer_q", il)
        self._store(g, cur, inp, il)
        keys = self._pool_keys(g, inp, il)  # [size, 1, n_pool]
        weights = scale(g.mm(self.proj, cur), inv_sqrt(n.size * n.n_head))
        g.cb(weights, "indexer_weights", il)
        if g.form(LIGHTNING_INDEXER) == "fused":
            scores = lightning_indexer(q, keys, weights, inp.mask)
            g.mark_fused(LIGHTNING_INDEXER.kind, scores)
        else:
            scores = score_pools(q, keys, weights, inp.mask)
        return self._select_cells(g, g.cb(scores, "indexer_score", il), inp, il)

    def _store(self, g: GraphBuilder, cur: Tensor, inp: InputKPool, il: int) -> None:
        """Store each token's key and gate, and reserve space for a pool's key."""
        size, n_tokens = self.n.size, g.n_tokens
        key = self.k_norm(g, g.mm(self.attn_k, cur), "indexer_k", il)
        gate = g.cb(g.mm(self.gate, cur), "indexer_gate", il)
        zeros = fill(Tensor(F32, (size, n_tokens)), 0.0)
        row = reshape(concat(concat(key, gate, 0), zeros, 0), 3 * size, 1, n_tokens)
        g.expand(kpool_context(g.params).cpy_k(row, inp.k_idxs, il))

    def _pool_keys(self, g: GraphBuilder, inp: InputKPool, il: int) -> Tensor:
        """Compute the keys of new pools and return the keys of all pools, [size, 1, n_pool]."""
        size, pool, mctx = self.n.size, self.n.pool, kpool_context(g.params)
        n_new, n_pool = inp.new.ne[1], inp.n_pool
        # in llama.cpp's order; a view becomes a node only at its first use
        stored = mctx.get_k_rows(il, size, 2 * size)
        rows = get_rows(mctx.get_k_rows(il, 2 * size), new_rows(g, inp))
        rows = reshape(rows, 2 * size, pool, n_new)
        key, gate = (
            view(rows, (size, pool, n_new), (2 * size, 2 * size * pool), first)
            for first in (0, size)
        )
        gate = cont(permute(add(gate, self.ape), 1, 0, 2, 3))  # [pool, size, n_new]
        weights = soft_max(reshape(gate, pool, size * n_new))
        weights = reshape(weights, pool, size, n_new)
        new = sum_rows(mul(weights, cont(permute(key, 1, 0, 2, 3))))
        new = g.cb(reshape(new, size, n_new), "indexer_pool_k_new", il)
        if inp.new_rows is not None:
            g.expand(set_rows(stored, new, inp.new_rows))
            every = get_rows(stored, inp.cells)
        else:
            every = concat(new, fill(Tensor(F32, (size, n_pool - n_new)), 0.0), 1)
        return g.cb(reshape(every, size, 1, n_pool), "indexer_pool_k", il)

    def _select_cells(self, g: GraphBuilder, scores: Tensor, inp: InputKPool, il: int) -> Tensor:
        """Return cells of the best pools, best first, then the cells after the last pool.
        scores [n_pool, T] -> I32 [n_sel, T]"""
        n_pool, n_tokens, n_top, pool = inp.n_pool, g.n_tokens, inp.n_top, self.n.pool
        best = top_k(scores, n_top)  # in any order
        of_best = get_rows(reshape(scores, 1, n_pool, n_tokens), best)
        order = argsort(reshape(of_best, n_top, n_tokens), "desc")
        best = get_rows(reshape(cast(best, F32), 1, n_top, n_tokens), order)
        best = cast(cont(reshape(best, n_top, n_tokens)), I32)
        g.cb(best, "indexer_top_k", il)
        cells = get_rows(inp.members, reshape(best, n_top * n_tokens))
        return concat(reshape(cells, pool * n_top, n_tokens), inp.tails, 0)


def new_rows(g: GraphBuilder, inp: InputKPool) -> Tensor:
    """Return the rows of new pools' tokens as one list; indexers share it if masks do."""

    def flat() -> Tensor:
        return reshape(inp.new, inp.size * inp.n_new)

    return g.shared("new-pools", flat) if inp.masks else flat()


def score_pools(q: Tensor, k: Tensor, weights: Tensor, mask: Tensor) -> Tensor:
    """Compute pool scores without the fused op: [n_pool, T].
    q [size, H, T], k [size, 1, n_pool], weights [H, T], mask [n_pool, T]"""
    kq = mul_mat(permute(k, 0, 2, 1, 3), permute(q, 0, 2, 1, 3))  # [n_pool, T, H]
    kq = cont(permute(kq, 2, 1, 0, 3))
    scores = sum_rows(mul(relu(kq), weights))  # [1, T, n_pool]
    return add(cont(permute(scores, 2, 1, 0, 3)), mask)


def _mask_unchosen(mask: Tensor, cells: Tensor, inp: InputKPool) -> Tensor:
    """Restrict a mask to the chosen cells, by writing zeros over -inf. Unused cells get separate
    rows after the cache's, so that no row is written twice.

    mask [n_kv, T in all streams], cells I32 [n_sel, T] -> [n_kv, T]
    """
    n_kv, (n_sel, n_tokens) = inp.n_kv, cells.ne[:2]
    seed = cast(view(cells, (1,)), F32)
    hidden = fill(seed if mask.type is F32 else cast(seed, mask.type), -math.inf)
    hidden = repeat_4d(hidden, 1, n_kv + n_sel, n_tokens, 1)
    hidden = reshape(hidden, 1, n_kv + n_sel, n_tokens)
    zeros = reshape(repeat_4d(fill(seed, 0.0), 1, n_sel, n_tokens, 1), 1, n_sel, n_tokens)
    live = reshape(inp.live, n_sel, n_tokens)
    rows = set_rows(hidden, zeros, reshape(separate_unused(cells, live, n_kv), n_sel, n_tokens, 1))
    shown = view(rows, (n_kv, n_tokens), (n_kv + n_sel,))
    return add(shown, reshape(mask, n_kv, n_tokens))


def separate_unused(cells: Tensor, live: Tensor, n_kv: int) -> Tensor:
    """Give unused cells separate numbers from n_kv on: I32 [n_sel, T] -> I32 [n_sel, T].

    live  F32 [n_sel, T] 0 for used cells, else -inf
    """
    cells, n_sel = cast(cells, F32), cells.ne[0]
    own = arange(float(n_kv), float(n_kv + n_sel), 1.0)
    return cast(add(mul(sub(cells, own), exp(live)), own), I32)


def mask_with_cells(mask: Tensor, at: Tensor, zeros: Tensor) -> Tensor:
    """Restrict a mask to the cells `at`; numbers from n_kv on are unused.

    mask [n_kv, n, 1, n_stream], at I32 [n_sel, T], zeros [1, n_sel, T] -> like mask
    """
    (n_kv, n), (n_sel, n_tokens) = mask.ne[:2], at.ne[:2]
    n_all = n_kv + n_sel
    at = reshape(at, n_sel, n_tokens, 1)
    rows = set_rows(column(mask.type, -math.inf, n_all, n_tokens), zeros, at)
    return add(view(rows, mask.ne, (n_all, n_all * n, n_all * n)), mask)


def column(type: GGMLType, value: float, n: int, n_tokens: int) -> Tensor:
    """Return [1, n, n_tokens] of a value."""
    one = repeat_4d(fill(Tensor(type, (n,)), value), n, n_tokens, 1, 1)
    return reshape(one, 1, n, n_tokens)
