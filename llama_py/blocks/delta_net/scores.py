"""Scores of keys with keys and queries in a delta net's chunks, decayed by exp(g_i - g_j)
for a token i and an earlier token j; g is the running sum of the gates.

Exponents are never positive: exp(g_i) / exp(g_j) would overflow if a gate closes.
"""

from __future__ import annotations

from ggml_py.ops import (
    cont,
    exp,
    mul,
    mul_mat,
    neg,
    pad,
    permute,
    repeat_4d,
    reshape,
    set_,
    sub,
    transpose,
    tri,
    view,
)
from ggml_py.tensor import Tensor
from llama_py.blocks.delta_net.rule import Rule
from llama_py.blocks.functions import tokens

Pair = tuple[Tensor, Tensor]

BLOCK = 16  # tokens of a block within a chunk


class DeltaScores(Rule):
    """Three computations of the same scores. For chunks of CS tokens, they take q, k and k * beta
    [S, CS, n_chunks, HB] and g [CS, 1 or S, n_chunks, HB], and return two [CS, CS, n_chunks, HB]:
    k * beta and q with k. Values above the diagonal (keys after the token) are undefined.
    """

    def _decay_mask(self, g_i: Tensor, g_j: Tensor) -> Tensor:
        """Return exp(g_j - g_i) on and below the diagonal, with i as dimension 0."""
        mask = exp(tri(sub(g_j, g_i), "lower_diag"))
        return self.cb(mask, "decay_mask")

    def per_head(self, q: Tensor, k: Tensor, k_b: Tensor, g: Tensor) -> Pair:
        """Compute scores with one gate per head: multiply, then decay."""
        cs, _, n_chunks, hb = g.ne
        g_j = repeat_4d(reshape(g, 1, cs, n_chunks, hb), cs, cs, n_chunks, hb)
        mask = self._decay_mask(g, g_j)
        return mul(mul_mat(k, k_b), mask), mul(mul_mat(k, q), mask)

    def per_channel(self, q: Tensor, k: Tensor, k_b: Tensor, g: Tensor) -> Pair:
        """Compute scores with one gate per channel: decay the keys, then multiply."""
        size, cs, n_chunks, hb = k.ne
        chb = n_chunks * hb
        g_i = reshape(g, cs, 1, size, chb)
        g_j = repeat_4d(reshape(g, 1, cs, size, chb), cs, cs, size, chb)
        mask = self._decay_mask(g_i, g_j)
        mask = cont(permute(mask, 2, 1, 0, 3), size, cs, cs, chb)  # [S, CS_j, CS_i, CHB]
        k_b_i = reshape(k_b, size, cs, 1, chb)
        k_j = reshape(k, size, 1, cs, chb)
        q_i = reshape(q, size, cs, 1, chb)
        decay_k, decay_q = mul(mask, k_b_i), mul(mask, q_i)
        kb, kq = mul_mat(decay_k, k_j), mul_mat(decay_q, k_j)
        kb, kq = (cont(transpose(reshape(t, cs, cs, n_chunks, hb))) for t in (kb, kq))
        return kb, kq

    def in_blocks(self, q: Tensor, k: Tensor, k_b: Tensor, g: Tensor) -> Pair:
        """Compute scores in blocks of 16 x 16; only diagonal blocks need a mask.

        Below them every key is before every token, so the decay is a product of two: from the key
        to the last token before the block's, and from there on.
        """
        n_blocks = k.ne[1] // BLOCK
        g = cont(transpose(g))  # [1 or S, CS, n_chunks, HB]
        kb, kq = (_diagonal(t, n_blocks) for t in self._diagonal_blocks(q, k, k_b, g))
        for i in range(1, n_blocks):
            start = tokens(g, i * BLOCK - 1, 1)
            since = exp(sub(tokens(g, i * BLOCK, BLOCK), start))
            q_i, k_b_i = (mul(tokens(t, i * BLOCK, BLOCK), since) for t in (q, k_b))
            for j in range(i):
                until = exp(neg(sub(tokens(g, j * BLOCK, BLOCK), start)))
                k_j = mul(tokens(k, j * BLOCK, BLOCK), until)
                kb = _set_block(kb, mul_mat(k_j, k_b_i), i, j)
                kq = _set_block(kq, mul_mat(k_j, q_i), i, j)
        return kb, kq

    def _diagonal_blocks(self, q: Tensor, k: Tensor, k_b: Tensor, g: Tensor) -> Pair:
        """Compute the scores of each block with itself, as chunks of one block."""
        n, hb = k.ne[1] * k.ne[2] // BLOCK, k.ne[3]
        q, k, k_b, g = (reshape(t, t.ne[0], BLOCK, n, hb) for t in (q, k, k_b, g))
        scores = self.per_head if g.ne[0] == 1 else self.per_channel
        return scores(q, k, k_b, cont(transpose(g)))


def _diagonal(blocks: Tensor, n_blocks: int) -> Tensor:
    """Place blocks [16, 16, n_blocks * n_chunks, HB] on diagonals of [CS, CS, n_chunks, HB]."""
    hb, size = blocks.ne[3], BLOCK * BLOCK
    n_chunks, rest = blocks.ne[2] // n_blocks, (n_blocks - 1) * BLOCK
    ne = (BLOCK, BLOCK, n_chunks, hb)
    strides = (BLOCK, n_blocks * size, n_blocks * n_chunks * size)
    parts = [view(blocks, ne, strides, i * size) for i in range(n_blocks)]
    scores = pad(parts[0], rest, rest, 0, 0)
    for i in range(1, n_blocks):
        scores = _set_block(scores, parts[i], i, i)
    return scores


def _set_block(scores: Tensor, block: Tensor, i: int, j: int) -> Tensor:
    """Write a block of tokens i and keys j into `scores`, and return them."""
    offset = BLOCK * (i * scores.nb[1] + j * scores.nb[0])
    return set_(scores, block, *scores.nb[1:], offset, inplace=True)
