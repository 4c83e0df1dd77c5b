"""The LiLiCorr head of DFlash: attention between the candidates of a block's positions, and scores
of adjacent candidates (models/dflash.cpp of llama.cpp b11739)."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from ggml_py.ops import (
    add,
    arange,
    argsort,
    cast,
    concat,
    cont,
    get_rows,
    l2_norm,
    log,
    mul,
    mul_mat,
    norm,
    out_prod,
    pad,
    pad_ext,
    permute,
    repeat_4d,
    reshape,
    rms_norm,
    scale,
    silu,
    soft_max,
    soft_max_ext,
    step,
    sub,
    top_k,
    transpose,
    view,
)
from ggml_py.tensor import Tensor
from ggml_py.types import F32
from llama_py.gguf.keys import Keys
from llama_py.graph.builder import GraphBuilder
from llama_py.graph.linear import Linear
from llama_py.weights import Weights

Rows = Callable[[Tensor], Tensor]
N_FEATURES = 5  # of a candidate, see `BlockCandidates.features`
FEATURES_EPS = 1e-5


@dataclass(frozen=True, slots=True)
class LiLiCorrSizes:
    """n_embd       of the draft model;  block  tokens of a block
    n_hidden     of a candidate;  top_k  candidates of a position
    n_head, n_layer, n_ff   of the layers
    n_factor     of the vectors that score two candidates by their cosine
    vector_eps   smallest length of such a vector;  logit_scale  factor of cosines
    """

    n_embd: int
    block: int
    n_hidden: int
    top_k: int
    n_head: int
    n_layer: int
    n_factor: int
    n_ff: int
    vector_eps: float
    logit_scale: float

    @property
    def n_slot(self) -> int:
        """Positions with candidates: all except the first."""
        return self.block - 1


def read_sizes(keys: Keys, n_embd: int, n_vocab: int, block: int) -> LiLiCorrSizes | None:
    """Read the head's sizes, which have keys without a prefix; None if the file has no head."""
    if not keys.has("/lilicorr.hidden_size"):
        return None
    names = "hidden_size", "candidate_topk", "num_heads", "num_layers", "factor_dim"
    numbers = [keys.uint(f"/lilicorr.{name}") for name in (*names, "mlp_hidden_size")]
    n_hidden, k, n_head, n_layer, n_factor, n_ff = numbers
    for name, number in zip((*names, "mlp_hidden_size"), numbers, strict=True):
        if not number:
            raise keys.error(f"/lilicorr.{name}", "must be at least 1")
    if n_hidden % n_head:
        raise keys.error("/lilicorr.num_heads", f"must divide lilicorr.hidden_size = {n_hidden}")
    if k > n_vocab or k * (k + 1) > n_embd:
        raise keys.error(
            "/lilicorr.candidate_topk",
            f"k must be at most {n_vocab} tokens, and k * (k + 1) at most {n_embd} dimensions",
        )
    if block < 2:
        raise keys.error("block_size", "must be at least 2")
    eps, factor = keys.number("/lilicorr.vector_eps"), keys.number("/lilicorr.logit_scale")
    return LiLiCorrSizes(n_embd, block, n_hidden, k, n_head, n_layer, n_factor, n_ff, eps, factor)


class CandidateLayer:
    """Attention between all candidates of a block, then a feed-forward."""

    def __init__(self, w: Weights, head: Weights, n: LiLiCorrSizes, number: int) -> None:
        """Declare the weights; w: tensors blk.N; head: other tensors of the head's layer
        `number`."""
        self.n, hidden = n, n.n_hidden
        self.attn_norm = w.tensor("attn_norm.weight", hidden)
        self.ffn_norm = w.tensor("ffn_norm.weight", hidden)
        stem = f"lilicorr.layers.{number}.attn.in_proj"
        self.qkv = head.linear(stem, hidden, 3 * hidden, bias="needed", scaled=False)
        self.output = w.linear("attn_output", hidden, hidden, bias="needed", scaled=False)
        self.up = w.linear("ffn_up", hidden, n.n_ff, bias="needed", scaled=False)
        self.down = w.linear("ffn_down", n.n_ff, hidden, bias="needed", scaled=False)

    def __call__(self, g: GraphBuilder, x: Tensor, bias: Tensor, n_blocks: int) -> Tensor:
        """Apply the layer: x [n_hidden, candidates], bias [per block, per block, n_head] -> like
        x."""
        eps = g.hp.f_norm_rms_eps
        x = add(x, self._attend(g, mul(rms_norm(x, eps), self.attn_norm), bias, n_blocks))
        cur = mul(rms_norm(x, eps), self.ffn_norm)
        return add(x, self.down(g, silu(self.up(g, cur))))

    def _attend(self, g: GraphBuilder, x: Tensor, bias: Tensor, n_blocks: int) -> Tensor:
        n, hidden, n_each = self.n, self.n.n_hidden, bias.ne[0]
        d = hidden // n.n_head
        qkv = reshape(self.qkv(g, x), 3 * hidden, n_each, n_blocks)
        shape, strides = (d, n_each, n.n_head, n_blocks), (3 * hidden, d, 3 * hidden * n_each)
        q, k, v = (view(qkv, shape, strides, i * hidden) for i in range(3))
        weights = soft_max_ext(mul_mat(cont(k), cont(q)), bias, 1 / math.sqrt(d), 0.0)
        out = permute(out_prod(v, transpose(weights)), 0, 2, 1, 3)
        return self.output(g, cont(out, hidden, n_each * n_blocks))


@dataclass(slots=True)
class BlockCandidates:
    """The most likely tokens of every position except a block's first.

    ids       I32 [k, n_slot, n_blocks], best first
    features  F32 [N_FEATURES, candidates]: log-probability, probability, log-probability minus the
              best one's, rank from 0 to 1, and 1 for the best
    """

    ids: Tensor
    features: Tensor


def find_candidates(logits: Tensor, k: int, block: int) -> BlockCandidates:
    """Choose candidates by logits [n_vocab, n_tokens]."""
    n_vocab, n_tokens, *_ = logits.ne
    m, n_blocks = block - 1, n_tokens // block
    found = top_k(logits, k)
    scores = get_rows(reshape(logits, 1, n_vocab, n_tokens), found)
    order = argsort(reshape(scores, k, n_tokens), "desc")
    ids = reshape(get_rows(reshape(found, 1, k, n_tokens), order), k, n_tokens)
    probs = get_rows(reshape(soft_max(logits), 1, n_vocab, n_tokens), ids)
    probs = drop_first(reshape(probs, k, n_tokens), block)
    logs = reshape(log(probs), k, m, n_blocks)
    best = view(logs, (1, m, n_blocks), (k, k * m))
    ranks = repeat_4d(reshape(arange(0.0, float(k)), k, 1, 1), k, m, n_blocks, 1)
    place = scale(ranks, 1 / (k - 1) if k > 1 else 0.0)
    features = [logs, probs, sub(logs, best), place, scale(step(ranks), -1, 1)]
    joined, *others = (reshape(t, 1, k, m, n_blocks) for t in features)
    for one in others:
        joined = concat(joined, one, 0)
    joined = reshape(joined, N_FEATURES, k * m * n_blocks)
    return BlockCandidates(drop_first(ids, block), joined)


def drop_first(x: Tensor, block: int) -> Tensor:
    """Return rows of all positions except the first of each block: [n, n_tokens] -> [n, block - 1,
    n_blocks]."""
    n, n_blocks = x.ne[0], x.ne[1] // block
    x = reshape(x, n, block, n_blocks)
    return cont(view(x, (n, block - 1, n_blocks), (n, n * block), n))


class LiLiCorr:
    """Head that returns candidates with scores, like `Selector`. Scores of the first position's
    candidates depend on the state before the block."""

    def __init__(self, w: Weights, n: LiLiCorrSizes, first_layer: int) -> None:
        """Declare the weights; first_layer: number of the first tensors blk.N of the head."""
        self.n, hidden, n_each = n, n.n_hidden, n.top_k * n.n_slot

        def linear(name: str, n_in: int, n_out: int) -> Linear:
            return w.linear(f"lilicorr.{name}", n_in, n_out, bias="needed", scaled=False)

        self.token_proj = linear("token_proj", n.n_embd, hidden)
        self.pass_hidden_proj = linear("pass_hidden_proj", n.n_embd, hidden)
        self.context_proj = linear("context_proj", n.n_embd, hidden)
        features = w.layer(first_layer + n.n_layer)
        self.features_norm = features.tensor("ffn_norm.weight", N_FEATURES)
        self.features_bias = features.tensor("ffn_norm.bias", N_FEATURES)
        self.up = features.linear("ffn_up", N_FEATURES, hidden, bias="needed", scaled=False)
        self.down = features.linear("ffn_down", hidden, hidden, bias="needed", scaled=False)
        self.slots = w.tensor("lilicorr.slot_embedding.weight", hidden, n.n_slot)
        self.ranks = w.tensor("lilicorr.rank_embedding.weight", hidden, n.top_k)
        self.attention_bias = w.tensor("lilicorr.attention_bias.bias", n_each, n_each, n.n_head)
        self.layers = [CandidateLayer(w.layer(first_layer + i), w, n, i) for i in range(n.n_layer)]
        self.output_norm = w.tensor("lilicorr.output_norm.weight", hidden)
        self.anchor_norm = w.tensor("lilicorr.anchor_norm.weight", hidden)
        self.factor_input_proj = linear("factor_input_proj", 3 * hidden, hidden)
        self.out_head = linear("out_head", hidden, n.n_factor)
        self.in_head = linear("in_head", hidden, n.n_factor)
        self.anchor_out_head = linear("anchor_out_head", hidden, n.n_factor)

    def __call__(
        self, g: GraphBuilder, rows: Rows, logits: Tensor, hidden: Tensor, states: Tensor
    ) -> Tensor:
        """Return candidates and scores [n_embd, n_tokens].

        rows    embeddings of tokens: I32 [n] -> [n_embd, n]
        logits  [n_vocab, n_tokens]; hidden  [n_embd, n_tokens] the head's input
        states  [n_embd, n_tokens]; only the first of each block is used
        """
        n, n_tokens = self.n, logits.ne[1]
        n_blocks, k, m = n_tokens // n.block, n.top_k, n.n_slot
        found = find_candidates(logits, k, n.block)
        x = self._embed(g, found, rows, hidden)
        for layer in self.layers:
            x = layer(g, x, self.attention_bias, n_blocks)
        x = mul(rms_norm(x, g.hp.f_norm_rms_eps), self.output_norm)
        scores = self._score(g, x, self._anchor(g, states), n_blocks)
        ids = cast(reshape(found.ids, k, m, n_blocks), F32)
        rest = n.n_embd - k - k * k
        packed = pad_ext(concat(ids, scores, 0), 0, rest, 1, 0, 0, 0, 0, 0)
        packed = reshape(packed, n.n_embd, n_tokens)
        return g.expand(g.cb(packed, "lilicorr_lattice"))

    def build_unused(self, g: GraphBuilder, rows: Rows) -> None:
        """Build the head for one block of inputs without values, for plans of memory."""
        n = self.n
        logits = Tensor(F32, (g.hp.n_vocab, n.block))
        hidden, states = (Tensor(F32, (n.n_embd, n.block)) for _ in range(2))
        self(g, rows, logits, hidden, states)

    def _embed(self, g: GraphBuilder, found: BlockCandidates, rows: Rows, hidden: Tensor) -> Tensor:
        """Embed the candidates: token, state of the position, features, position and rank. ->
        [n_hidden, candidates]"""
        n, size = self.n, self.n.n_hidden
        k, m, n_blocks, _ = found.ids.ne
        n_all = k * m * n_blocks
        x = self.token_proj(g, rows(reshape(found.ids, n_all)))
        state = reshape(drop_first(hidden, n.block), n.n_embd, m * n_blocks)
        state = reshape(self.pass_hidden_proj(g, state), size, 1, m, n_blocks)
        x = add(x, reshape(repeat_4d(state, size, k, m, n_blocks), size, n_all))
        cur = mul(norm(found.features, FEATURES_EPS), self.features_norm)
        cur = add(cur, self.features_bias)
        x = add(x, self.down(g, silu(self.up(g, cur))))
        slots = repeat_4d(reshape(self.slots, size, 1, m), size, k, m, n_blocks)
        ranks = repeat_4d(reshape(self.ranks, size, k, 1), size, k, m, n_blocks)
        return add(x, reshape(add(slots, ranks), size, n_all))

    def _anchor(self, g: GraphBuilder, states: Tensor) -> Tensor:
        """Project the state before each block: [n_embd, n_tokens] -> [n_hidden, n_blocks]."""
        n_embd, block, n_blocks = self.n.n_embd, self.n.block, states.ne[1] // self.n.block
        states = reshape(states, n_embd, block, n_blocks)
        first = cont(view(states, (n_embd, 1, n_blocks), (n_embd, n_embd * block)))
        cur = self.context_proj(g, reshape(first, n_embd, n_blocks))
        return mul(rms_norm(cur, g.hp.f_norm_rms_eps), self.anchor_norm)

    def _score(self, g: GraphBuilder, x: Tensor, anchor: Tensor, n_blocks: int) -> Tensor:
        """Score each candidate after each candidate of the previous position, or after the anchor.
        x [n_hidden, candidates], anchor [n_hidden, n_blocks] -> [k * k, n_slot, n_blocks]"""
        n, size, k, m, f = self.n, self.n.n_hidden, self.n.top_k, self.n.n_slot, self.n.n_factor
        n_all = k * m * n_blocks
        context = repeat_4d(reshape(anchor, size, 1, n_blocks), size, k * m, n_blocks, 1)
        context = reshape(context, size, n_all)
        cur = concat(concat(x, context, 0), mul(x, context), 0)
        cur = silu(self.factor_input_proj(g, cur))
        to = self._factors(g, self.in_head, cur, n_blocks)
        shape, strides = (f, k, 1, n_blocks), (f, f * k, f * k * m)
        before = l2_norm(self.anchor_out_head(g, anchor), n.vector_eps)
        before = reshape(reshape(before, f, 1, n_blocks), f, 1, 1, n_blocks)
        first = scale(mul_mat(cont(view(to, shape, strides)), before), n.logit_scale)
        first = pad(reshape(first, k, 1, n_blocks), k * k - k, 0, 0, 0)
        if m == 1:
            return first
        shape = (f, k, m - 1, n_blocks)
        to = cont(view(to, shape, strides, f * k))
        after = self._factors(g, self.out_head, cur, n_blocks)
        scores = scale(mul_mat(to, cont(view(after, shape, strides))), n.logit_scale)
        return concat(first, reshape(scores, k * k, m - 1, n_blocks), 1)

    def _factors(self, g: GraphBuilder, head: Linear, cur: Tensor, n_blocks: int) -> Tensor:
        """Return vectors of length one: [n_hidden, candidates] -> [n_factor, k, n_slot,
        n_blocks]."""
        n = self.n
        return reshape(l2_norm(head(g, cur), n.vector_eps), n.n_factor, n.top_k, n.n_slot, n_blocks)
