"""Attention to blocks of positions, chosen by a small index head per group of heads
(models/minimax-m3.cpp)."""

from __future__ import annotations

from dataclasses import dataclass

from ggml_py.ops import (
    add,
    arange,
    cast,
    concat,
    cont,
    flash_attn_ext,
    get_rows,
    mul_mat,
    permute,
    pool_2d,
    repeat_4d,
    reshape,
    scale,
    set_rows,
    top_k,
    transpose,
    view_1d,
    view_2d,
    view_3d,
    view_4d,
)
from ggml_py.tensor import Tensor
from ggml_py.types import F16, F32, I32
from llama_py.blocks.attention import QKV, Attention, head_norms
from llama_py.blocks.rope import rope
from llama_py.graph.builder import GraphBuilder
from llama_py.graph.inputs.blocks import InputBlocks
from llama_py.graph.linear import Norm
from llama_py.hparams import HParams
from llama_py.memory.kv_rot import rotate
from llama_py.memory.specs import BASE
from llama_py.weights import Weights

HIDDEN = -1e30  # -inf as F16


@dataclass(frozen=True, slots=True)
class BlockSizes:
    """n_embd_head  dimensions of index keys, which select blocks; size  positions of a block
    n_chosen   blocks that a token attends to; n_local  number of its last blocks among these"""

    n_embd_head: int
    size: int
    n_chosen: int
    n_local: int


class BlockAttention(Attention):
    """Block-sparse attention with flash attention and one cache per sequence; otherwise full
    attention."""

    def __init__(self, w: Weights, hp: HParams, sizes: BlockSizes) -> None:
        super().__init__(w, hp, norms=head_norms(w, hp))
        n_head, d = hp.layers[w.il].n_head_kv, sizes.n_embd_head
        self.sizes, self.n_group = sizes, n_head
        self.index_q = w.linear("indexer.q_proj", hp.n_embd, n_head * d, scaled=False)
        self.index_k = w.linear("indexer.k_proj", hp.n_embd, d, scaled=False)
        self.index_q_norm = w.norm("indexer.q_norm", d)
        self.index_k_norm = w.norm("indexer.k_norm", d)

    def __call__(self, g: GraphBuilder, cur: Tensor, il: int) -> Tensor:
        cp = g.cparams
        if not cp.flash_attn or (cp.n_seq_max > 1 and cp.kv_unified):
            return super().__call__(g, cur, il)
        qkv = self.normalize_heads(g, self.project(g, cur, il), il)
        q, k = self.place(g, qkv, il)
        g.cb(qkv.v, "Vcur", il)
        query = self._heads(g, self.index_q(g, cur), self.index_q_norm, il)
        keys = self._store_keys(g, self._heads(g, self.index_k(g, cur), self.index_k_norm, il), il)
        return self.output(g, self._to_blocks(g, QKV(q, k, qkv.v), query, keys, il))

    def _heads(self, g: GraphBuilder, x: Tensor, norm: Norm, il: int) -> Tensor:
        """Split x into heads, normalize and rotate them: [d * H, n_tokens] -> [d, H, n_tokens]."""
        d = self.sizes.n_embd_head
        x = norm(g, reshape(x, d, x.ne[0] // d, g.n_tokens), il=il)
        return rope(g, x, il)

    def _store_keys(self, g: GraphBuilder, keys: Tensor, il: int) -> Tensor:
        """Store index keys and return the keys of all cells: [d, 1, n_kv, n_stream]."""
        inp = g.inp_index(True)
        g.expand(inp.mctx.cpy_k(keys, inp.k_idxs, il))
        return inp.mctx.get_k(il)

    def _to_blocks(self, g: GraphBuilder, qkv: QKV, query: Tensor, keys: Tensor, il: int) -> Tensor:
        """query [d, H_kv, n_tokens], keys [d, 1, n_kv, n_stream] choose the blocks
        -> [d_v * n_head, n_tokens]"""
        inp, n = g.inp_attn(il), self.sizes
        blocks = g.shared(
            "blocks", lambda: g.add_input(InputBlocks(g.params, BASE, n.size, n.n_local))
        )
        if inp.k_rot is not None:
            qkv = qkv._replace(q=rotate(qkv.q, inp.k_rot), k=rotate(qkv.k, inp.k_rot))
        if inp.v_rot is not None:
            qkv = qkv._replace(v=rotate(qkv.v, inp.v_rot))
        for t in qkv:
            g.expand(t)
        g.expand(inp.mctx.cpy_k(qkv.k, inp.k_idxs, il))
        assert inp.v_idxs is not None
        g.expand(inp.mctx.cpy_v(qkv.v, inp.v_idxs, il))
        seen = QKV(qkv.q, inp.mctx.get_k(il), inp.mctx.get_v(il))
        chosen = _BlockChoice(self, g, blocks, il)
        if blocks.cell_blk is None:
            cur = chosen.attend_gathered(seen, query, keys)
        else:
            mask = g.shared("mask_f32", lambda: cast(inp.kq_mask, F32))
            parts = [
                chosen.attend_masked(_stream(seen, query, keys, i), mask, i)
                for i in range(keys.ne[3])
            ]
            cur = parts[0]
            for part in parts[1:]:
                cur = concat(cur, part, 1)
        cur = cur if inp.v_rot is None else rotate(cur, inp.v_rot)
        return g.cb(cur, "kqv_out", il)


@dataclass(frozen=True, slots=True)
class _Stream:
    """Tensors of one stream: q [d, n_head, T], k and v [d, H_kv, n_kv], and for choosing blocks
    query [d, H_kv, T] and keys [d, n_kv]."""

    q: Tensor
    k: Tensor
    v: Tensor
    query: Tensor
    keys: Tensor


def _stream(seen: QKV, query: Tensor, keys: Tensor, i: int) -> _Stream:
    n = query.ne[2] // keys.ne[3]

    def of_tokens(x: Tensor) -> Tensor:
        return view_3d(x, x.ne[0], x.ne[1], n, x.nb[1], x.nb[2], i * n * x.nb[2])

    def of_cells(x: Tensor) -> Tensor:
        return view_4d(x, *x.ne[:3], 1, *x.nb[1:], i * x.nb[3])

    rows = view_2d(keys, keys.ne[0], keys.ne[2], keys.nb[2], i * keys.nb[3])
    return _Stream(of_tokens(seen.q), of_cells(seen.k), of_cells(seen.v), of_tokens(query), rows)


class _BlockChoice:
    """Choice of blocks for each token, and attention to their cells."""

    def __init__(self, block: BlockAttention, g: GraphBuilder, inp: InputBlocks, il: int) -> None:
        self.g, self.inp, self.il, self.size = g, inp, il, block.sizes.size
        self.kq_scale, self.n_group = block.kq_scale, block.n_group
        self.n_pos, self.n_blocks = inp.n_pos, inp.n_pos // self.size
        self.n_chosen = min(block.sizes.n_chosen, self.n_blocks)

    def _score_blocks(self, scores: Tensor, mask: Tensor) -> Tensor:
        """Score each block by its best position: [n_pos, ...] -> [n_blocks, ...]."""
        scores = add(scores, mask, inplace=True)
        best = pool_2d(scores, "max", self.size, 1, self.size, 1, 0, 0)
        return self.g.cb(best, "msa_bs", self.il)

    def attend_masked(self, s: _Stream, mask: Tensor, i: int) -> Tensor:
        """Attend with a mask per group of heads: [n_kv, T, 1, n_stream] -> [d_v * n_head, T]."""
        g, inp, n_head, n = self.g, self.inp, self.n_group, s.q.ne[2]
        assert inp.cell_blk is not None
        slots = view_1d(inp.slots, self.n_pos, i * inp.slots.nb[1])
        keys = get_rows(s.keys, slots)  # [d, n_pos]
        query = reshape(s.query, s.query.ne[0], n_head * n)
        scores = reshape(mul_mat(keys, query, "f32"), self.n_pos, n_head, n)
        best = self._score_blocks(scores, _tokens(inp.pos_mask, n, i))
        bias = _tokens(inp.bias, n, i)
        best = g.cb(add(best, bias), "msa_bsf", self.il)
        shown = self._block_mask(top_k(best, self.n_chosen), bias)  # [n_blocks, T, H]
        n_kv = mask.ne[0]
        cells = view_1d(inp.cell_blk, n_kv, i * inp.cell_blk.nb[1])
        by_block = cont(transpose(reshape(shown, self.n_blocks, n * n_head)))
        by_cell = cont(transpose(get_rows(by_block, cells)))
        by_cell = reshape(by_cell, n_kv, n, n_head)
        causal = view_3d(mask, n_kv, n, 1, mask.nb[1], mask.nb[3], i * mask.nb[3])
        both = reshape(add(by_cell, causal, inplace=True), n_kv, n, 1, n_head)
        both = g.cb(cast(both, F16), "msa_mask4", self.il)
        k, v = (permute(x, 0, 3, 1, 2) for x in (s.k, s.v))  # [d, n_kv, 1, H]
        return self._attend(s.q, k, v, both)

    def _block_mask(self, chosen: Tensor, bias: Tensor) -> Tensor:
        """Return a mask that is 0 for chosen blocks and -inf for others, F16 [n_blocks, T, H].
        chosen I32 [n_chosen, H, T], bias [n_blocks, 1, T]"""
        n_blocks, n_head, n = self.n_blocks, self.n_group, chosen.ne[2]
        hidden = cast(scale(bias, 0.0, HIDDEN), F16)
        hidden = repeat_4d(hidden, n_blocks, n_head, n, 1)
        zeros = scale(cast(chosen, F32), 0.0)
        rows = set_rows(
            reshape(hidden, 1, n_blocks, n_head * n),
            reshape(zeros, 1, self.n_chosen, n_head * n),
            reshape(chosen, self.n_chosen, n_head * n),
        )
        shown = cont(permute(reshape(rows, n_blocks, n_head, n), 0, 2, 1, 3))
        return self.g.cb(shown, "msa_block_mask", self.il)

    def attend_gathered(self, s: QKV, query: Tensor, keys: Tensor) -> Tensor:
        """Attend with one token per stream, reading chosen blocks' cells only: -> [d_v * n_head,
        n_stream]."""
        inp, size, n_head = self.inp, self.size, self.n_group
        n_stream, k = keys.ne[3], s.k
        d, n_pos, n_chosen = query.ne[0], self.n_pos, self.n_chosen
        rows = view_3d(keys, d, keys.ne[2], n_stream, keys.nb[2], keys.nb[3], 0)
        by_pos = get_rows(rows, inp.slots)  # [d, n_pos, n_stream]
        query = reshape(query, d, n_head, 1, n_stream)
        scores = mul_mat(reshape(by_pos, d, n_pos, 1, n_stream), query, "f32")
        best = self._score_blocks(scores, reshape(inp.pos_mask, n_pos, 1, 1, n_stream))
        best = add(best, reshape(inp.bias, self.n_blocks, 1, 1, n_stream))
        at, cells = self._cells(top_k(best, n_chosen))
        k, v = (
            view_3d(x, x.ne[0], n_head * x.ne[2], n_stream, x.nb[1], x.nb[3], 0) for x in (s.k, s.v)
        )
        k, v = (self._gather(x, get_rows(x, cells)) for x in (k, v))
        mask = get_rows(reshape(inp.pos_mask, 1, n_pos, n_stream), at)
        mask = cast(reshape(mask, size * n_chosen, 1, 1, n_head * n_stream), F16)
        return self._attend(s.q, k, v, mask)

    def _cells(self, chosen: Tensor) -> tuple[Tensor, Tensor]:
        """Return positions of the chosen blocks and the cache rows of their keys.
        chosen I32 [n_chosen, H, 1, n_stream] -> I32 [size * n_chosen * H, n_stream] both"""
        size, n_head, n_stream, n_chosen = self.size, self.n_group, chosen.ne[3], self.n_chosen
        assert self.inp.slots_f is not None
        n = size * n_chosen * n_head
        first = reshape(scale(cast(chosen, F32), float(size)), 1, n_chosen, n_head, n_stream)
        first = repeat_4d(first, size, n_chosen, n_head, n_stream)
        within = reshape(arange(0.0, float(size), 1.0), size, 1, 1)
        at = cast(reshape(add(first, within), n, n_stream), I32)
        slots = reshape(self.inp.slots_f, 1, self.n_pos, n_stream)
        cells = reshape(get_rows(slots, at), size, n_chosen, n_head, n_stream)
        head = reshape(arange(0.0, float(n_head), 1.0), 1, 1, n_head)
        rows = add(scale(cells, float(n_head)), head)
        return at, cast(reshape(rows, n, n_stream), I32)

    def _gather(self, cache: Tensor, rows: Tensor) -> Tensor:
        """Reshape gathered rows to [d, size * n_chosen, 1, H * n_stream], of the cache's type (or
        F16). rows F32 [d, size * n_chosen * H, n_stream]"""
        n = self.size * self.n_chosen
        rows = reshape(rows, rows.ne[0], n, 1, self.n_group * rows.ne[2])
        type = F16 if cache.type.block_size > 1 else cache.type
        return rows if rows.type is type else cast(rows, type)

    def _attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
        """Run flash attention once for all groups, each with its keys and mask. -> [d * n_head, T]
        q [d, n_head, T], k and v [d, n, 1, C], mask [n, R, 1, C]; C counts groups, or groups of
        streams"""
        d, n_head, n, _ = q.ne
        group, c = n_head // self.n_group, k.ne[3]
        r = n_head * n // (group * c)
        q = permute(reshape(q, d, group, c, r), 0, 2, 3, 1)
        cur = flash_attn_ext(
            q, k, v, mask, self.kq_scale, self.g.hp.max_alibi_bias, 0.0, None, "f32"
        )
        cur = permute(self.g.cb(cur, "msa_fattn", self.il), 0, 1, 3, 2)
        return reshape(cur if cur.is_contiguous() else cont(cur), d * n_head, n)


def _tokens(x: Tensor, n: int, i: int) -> Tensor:
    """Return the rows of stream i's n tokens as a view: [m, n_tokens] -> [m, 1, n]."""
    return view_3d(x, x.ne[0], 1, n, x.nb[1], x.nb[1], i * n * x.nb[1])
