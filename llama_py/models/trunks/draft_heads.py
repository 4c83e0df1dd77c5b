"""Heads and convolutions of models that draft blocks
(models/dflash.cpp:build_dspark_markov_head, build_dflash2_conv, build_dflash2_selector).

The tokens of each sequence of a ubatch are one block; all blocks are of the same length.
"""

from __future__ import annotations

from ggml_py.errors import ContextError
from ggml_py.ops import (
    add,
    argmax,
    cast,
    concat,
    cont,
    fill,
    get_rows,
    mul,
    mul_mat,
    pad,
    pad_ext,
    permute,
    repeat,
    repeat_4d,
    reshape,
    sigmoid,
    top_k,
    view_1d,
    view_2d,
    view_3d,
    view_4d,
)
from ggml_py.tensor import Tensor
from ggml_py.types import F32
from llama_py.graph.builder import GraphBuilder
from llama_py.models.trunks.draft import PartialHead
from llama_py.weights import Weights


def block_shape(g: GraphBuilder) -> tuple[int, int]:
    """Return number and length of the blocks; ContextError if lengths differ."""
    n_blocks = g.ubatch.n_seqs_unq
    if g.n_tokens % n_blocks:
        raise ContextError(
            f"{g.n_tokens} tokens of {n_blocks} sequences: this model drafts blocks of equal "
            "length; pass the same number of tokens per sequence"
        )
    return n_blocks, g.n_tokens // n_blocks


class MarkovHead:
    """Logits that depend on the previous token, computed position by position; optionally the
    confidence of each position.

    first  the first position of a block with a draft token
    """

    def __init__(
        self,
        w: Weights,
        n_embd: int,
        n_vocab: int,
        some: PartialHead | None,
        block: int,
        first: int,
    ) -> None:
        info = w.info("markov_w1.weight")
        assert info is not None
        rank, self.some, self.block, self.first = info.ne[0], some, block, first
        self.w1 = w.tensor("markov_w1.weight", rank, n_vocab)
        self.w2 = w.linear("markov_w2", rank, n_vocab if some is None else some.n)
        self.sure = w.optional_linear("conf_proj", n_embd + rank, 1, bias=True, scaled=False)

    def __call__(self, g: GraphBuilder, tokens: Tensor) -> None:
        """Add to the logits of each token by its predecessor; set g.res.t_logits and t_h_nextn."""
        n_blocks, n = block_shape(g)
        base = g.res.t_logits
        assert base is not None
        prev = view_2d(tokens, 1, n_blocks, n * tokens.nb[0], 0)
        prev = cont(prev, n_blocks)
        if n > self.block:
            if g.params.target_tensors.stands_in:  # planning needs the readers of its matrices
                before, bias = self._bias(g, prev)
                g.expand(bias)
                if (sure := self._sure(g, 0, n, before)) is not None:
                    g.expand(sure)
            return
        cat, sure = self._columns(g, base, prev, n)
        if sure is not None:
            assert g.res.t_embd is not None
            sure = repeat(_in_order(sure, n_blocks, n), g.res.t_embd)
            g.res.t_h_nextn = g.expand(sure)
        g.res.t_logits = g.expand(_in_order(cat, n_blocks, n))

    def _columns(
        self, g: GraphBuilder, base: Tensor, prev: Tensor, n: int
    ) -> tuple[Tensor, Tensor | None]:
        """Compute logits [n_vocab, n_tokens] and confidence [1, n_tokens], position by position."""
        n_vocab, n_blocks = base.ne[0], prev.ne[0]
        columns: list[Tensor] = []
        sure: list[Tensor] = []
        stride = n * base.nb[1]
        if self.first:
            columns.append(cont(view_2d(base, n_vocab, n_blocks, stride, 0)))
            if self.sure is not None:
                sure.append(sigmoid(cont(view_2d(base, 1, n_blocks, stride, 0))))
        for i in range(self.first, n):
            before, bias = self._bias(g, prev)
            here = view_2d(base, n_vocab, n_blocks, stride, i * base.nb[1])
            last = add(here, bias)
            columns.append(last)
            found = self._sure(g, i, n, before)
            if found is not None:
                sure.append(found)
            if i + 1 < n:
                prev = argmax(last)
        return _join(columns), _join(sure) if sure else None

    def _bias(self, g: GraphBuilder, prev: Tensor) -> tuple[Tensor, Tensor]:
        """Return embeddings [rank, n_blocks] of tokens and the bias they add [n_vocab,
        n_blocks]."""
        before = get_rows(self.w1, prev)
        bias = self.w2(g, before)
        return before, bias if self.some is None else self.some(g, bias, 0.0)

    def _sure(self, g: GraphBuilder, i: int, n: int, before: Tensor) -> Tensor | None:
        """Return the confidence at position i, [1, n_blocks], or None."""
        if self.sure is None:
            return None
        embd = g.res.t_embd
        assert embd is not None
        here = view_2d(embd, embd.ne[0], before.ne[1], n * embd.nb[1], i * embd.nb[1])
        cur = mul_mat(self.sure.weight, concat(cont(here), before, 0))
        return sigmoid(cur if self.sure.bias is None else add(cur, self.sure.bias))


def _join(columns: list[Tensor]) -> Tensor:
    cur = columns[0]
    for other in columns[1:]:
        cur = concat(cur, other, 1)
    return cur


def _in_order(cur: Tensor, n_blocks: int, n: int) -> Tensor:
    """Reorder rows from position-major to block-major: [m, n_tokens] -> same shape."""
    m = cur.ne[0]
    cur = cont(permute(reshape(cur, m, n_blocks, n), 0, 2, 1, 3))
    return reshape(cur, m, n_blocks * n)


class BlockConv:
    """A convolution along a block, before and after another block; its weights depend on tokens.

    base  [n_embd, kernel, 2] weights; each group of dimensions adds its weights
    """

    def __init__(self, w: Weights, stem: str, n_embd: int, kernel: int, group: int) -> None:
        self.kernel, self.group = kernel, group
        self.base = w.tensor(f"{stem}_base", n_embd, kernel, 2)
        n_groups = n_embd // group
        self.proj = w.linear(f"{stem}_proj", n_embd, 2 * kernel * n_groups, scaled=False)

    def __call__(self, g: GraphBuilder, hidden: Tensor, own: Tensor, side: int) -> Tensor:
        """Convolve hidden [n_embd, n_tokens]; own: result of `proj`; side: 0 before, 1 after."""
        n_blocks, block = block_shape(g)
        n_embd, n = hidden.ne[0], g.n_tokens
        if not hidden.is_contiguous():
            hidden = cont(hidden, n_embd, n)
        blocks = reshape(hidden, n_embd, block, n_blocks)
        weights, result = self._weights(own, n_embd, n, side), None
        for tap in range(min(self.kernel, block)):
            values = blocks
            if tap:
                nb = blocks.nb
                values = view_3d(blocks, n_embd, block - tap, n_blocks, nb[1], nb[2], 0)
                values = pad_ext(values, 0, 0, tap, 0, 0, 0, 0, 0)
            values = reshape(values, n_embd, n)
            nb = weights.nb
            weight = view_4d(
                weights, self.group, n_embd // self.group, 1, n, nb[1], nb[2], nb[3], tap * nb[2]
            )
            term = mul(reshape(cont(weight), n_embd, n), values)
            result = term if result is None else add(result, term)
        assert result is not None
        return result

    def _weights(self, own: Tensor, n_embd: int, n: int, side: int) -> Tensor:
        """[group, n_groups, kernel, n_tokens]"""
        n_groups = n_embd // self.group
        own = reshape(own, n_groups, self.kernel, 2, n)
        own = view_3d(own, n_groups, self.kernel, n, own.nb[1], own.nb[3], side * own.nb[2])
        own = reshape(cont(own), 1, n_groups, self.kernel, n)
        own = repeat_4d(own, self.group, n_groups, self.kernel, n)
        base = view_1d(self.base, n_embd * self.kernel, side * self.base.nb[2])
        return add(own, reshape(base, self.group, n_groups, self.kernel, 1))


class Selector:
    """Head that returns the most likely tokens per position, with scores after each previous token:
    rows of [tokens, scores by token before] in the first of n_embd dimensions."""

    def __init__(self, w: Weights, n_embd: int, n_vocab: int, rank: int, k: int, n: int) -> None:
        self.rank, self.k, self.block = rank, k, n
        self.before = w.tensor("selector_predecessor.weight", rank, n_vocab)
        self.after = w.tensor("selector_successor.weight", rank, n_vocab)
        self.gate = w.linear("selector_hidden", n_embd, rank, scaled=False)

    def __call__(self, g: GraphBuilder, tokens: Tensor) -> None:
        """Set t_h_nextn [n_embd, n_tokens] to candidates and scores, for tokens I32 [n_tokens]."""
        (n_blocks, n), logits, embd = block_shape(g), g.res.t_logits, g.res.t_embd
        assert logits is not None and embd is not None
        block, k, n_embd = min(n, self.block), self.k, embd.ne[0]
        found = top_k(logits, k)
        scores = get_rows(reshape(logits, 1, logits.ne[0], g.n_tokens), found)
        scores = reshape(scores, k, g.n_tokens)
        parts = [reshape(t, t.ne[0], n, n_blocks) for t in (found, scores, self.gate(g, embd))]
        packed = fill(Tensor(F32, (n_embd, 1, n_blocks)), 0.0)
        if block > 1:
            first = view_2d(tokens, 1, n_blocks, n * tokens.nb[0], 0)
            row = self._run(g, parts, 1, 1, cont(first, n_blocks), n_embd)
            packed = concat(packed, row, 1)
        if block > 2:
            ids = parts[0]
            prev = view_3d(ids, k, block - 2, n_blocks, ids.nb[1], ids.nb[2], ids.nb[1])
            prev = reshape(cont(prev), k * (block - 2) * n_blocks)
            packed = concat(packed, self._run(g, parts, 2, block - 2, prev, n_embd), 1)
        packed = reshape(packed, n_embd, block * n_blocks)
        g.res.t_h_nextn = g.expand(g.cb(packed, "dflash2_lattice"))

    def _run(
        self, g: GraphBuilder, parts: list[Tensor], at: int, n: int, prev: Tensor, n_embd: int
    ) -> Tensor:
        """Score n positions from `at` on, after `prev` I32 [tokens * n * n_blocks].
        -> [n_embd, n, n_blocks]"""
        k, rank, n_blocks = self.k, self.rank, parts[0].ne[2]
        ids, scores, gate = (
            cont(view_3d(t, t.ne[0], n, n_blocks, t.nb[1], t.nb[2], at * t.nb[1])) for t in parts
        )
        n_prev = prev.ne[0] // (n * n_blocks)
        after = get_rows(self.after, reshape(ids, k * n * n_blocks))
        after = reshape(after, rank, k, n, n_blocks)
        before = reshape(get_rows(self.before, prev), rank, n_prev, n, n_blocks)
        before = mul(before, repeat(reshape(gate, rank, 1, n, n_blocks), before))
        score = mul_mat(after, before)
        if n_prev == 1:
            score = repeat_4d(score, k, k, n, n_blocks)
        score = add(score, repeat(reshape(scores, k, 1, n, n_blocks), score))
        row = concat(cast(ids, F32), reshape(score, k * k, n, n_blocks), 0)
        return pad(row, n_embd - k - k * k, 0, 0, 0)
