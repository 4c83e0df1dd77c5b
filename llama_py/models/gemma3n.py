"""Gemma 3n: layers compute one of several streams, with a separate input per layer; later layers
attend to keys and values of an earlier layer (models/gemma3n.cpp)."""

from __future__ import annotations

from ggml_py.ops import add, concat, gelu, mean, mul, relu, scale, sqr, sqrt, sub, sum_rows
from ggml_py.tensor import Tensor
from llama_py.blocks.altup import AltUp, AltUpEnds, drop_first_stream, stream
from llama_py.blocks.attention import Projections
from llama_py.blocks.functions import inv_sqrt
from llama_py.blocks.per_layer import LayerGate, PerLayerInputs
from llama_py.gguf.keys import Keys
from llama_py.graph.builder import GraphBuilder
from llama_py.models.trunks.kv_shared import SharedKVDecoder, SharedKVHParams, attention
from llama_py.weights import Weights

# Sizes that all models share; they are not read from files.
N_ALTUP, N_EMBD_PER_LAYER, LAUREL_RANK = 4, 256, 64
N_LAYER_KV = 20  # layers with separate keys and values
N_LAYER_SPARSE = 10  # layers with large gates only in their feed-forward
SPARSITY_STD = 1.6448533535003662  # 95 % of a normal distribution are below


class Gemma3nHParams(SharedKVHParams):
    n_pattern = 5
    n_layer_kv_from_start = N_LAYER_KV

    def load(self, keys: Keys) -> None:
        super().load(keys)
        if 1 in self.n_ff[:N_LAYER_SPARSE]:
            raise keys.error(
                "feed_forward_length",
                "must not be 1, because one dimension has no deviation from its mean",
            )


class SparseFeedForward:
    """down(up x * gelu(gate x)), in the first layers of gates far above a token's mean only."""

    def __init__(self, w: Weights, n_embd: int, n_ff: int) -> None:
        self.gate = w.linear("ffn_gate", n_embd, n_ff, scaled=False)
        self.up = w.linear("ffn_up", n_embd, n_ff, scaled=False)
        self.down = w.linear("ffn_down", n_ff, n_embd, scaled=False)

    def __call__(self, g: GraphBuilder, cur: Tensor, il: int) -> Tensor:
        up, gate = self.up(g, cur), self.gate(g, cur)
        if il < N_LAYER_SPARSE:
            gate = _excess(gate)
        return g.cb(self.down(g, mul(up, gelu(gate))), "ffn_out", il)


def _excess(x: Tensor) -> Tensor:
    """Return the excess of each row over its mean plus SPARSITY_STD deviations."""
    middle = mean(x)
    deviation = sqrt(scale(sum_rows(sqr(sub(x, middle))), 1.0 / (x.ne[0] - 1)))
    return relu(sub(x, add(middle, scale(deviation, SPARSITY_STD))))


class Laurel:
    """x + norm(r l x), a small way around attention."""

    def __init__(self, w: Weights, n_embd: int) -> None:
        self.l = w.linear("laurel_l", n_embd, LAUREL_RANK, scaled=False)
        self.r = w.linear("laurel_r", LAUREL_RANK, n_embd, scaled=False)
        self.norm = w.norm("laurel_post_norm", n_embd)

    def __call__(self, g: GraphBuilder, cur: Tensor, il: int) -> Tensor:
        out = self.norm(g, self.r(g, self.l(g, cur)), il=il)
        return g.cb(add(out, cur), "laurel_out", il)


class Gemma3nLayer:
    def __init__(self, w: Weights, hp: Gemma3nHParams, il: int) -> None:
        n_embd, shape = hp.n_embd, hp.layers[il]
        self.n_embd = n_embd
        self.altup = AltUp(w, n_embd, N_ALTUP)
        self.correct_scale = w.tensor("altup_correct_scale.weight", n_embd)
        self.attn_norm, self.laurel = w.norm("attn_norm", n_embd), Laurel(w, n_embd)
        q_norm, k_norm = (w.norm(f"attn_{x}_norm", shape.n_embd_head_k) for x in "qk")
        own = hp.kv_layer(il) == il
        qkv = Projections(w, n_embd, shape, bias=True if own else "unread", scaled=own)
        self.attention = attention(hp, il)(w, hp, q_norm, k_norm, qkv)
        self.attn_post_norm = w.norm("post_attention_norm", n_embd)
        self.ffn_norm = w.norm("ffn_norm", n_embd)
        self.feed_forward = SparseFeedForward(w, n_embd, shape.n_ff)
        self.ffn_post_norm = w.norm("post_ffw_norm", n_embd)
        self.gate = LayerGate(w, n_embd, N_EMBD_PER_LAYER)

    def __call__(self, g: GraphBuilder, cur: Tensor, il: int, last: bool) -> Tensor:
        """Apply the layer to all streams: [n_embd, n_tokens, n_altup] -> same shape."""
        predicted = self.altup.predict(g, cur, il)
        active = g.cb(stream(predicted, 0), "active_prediction", il)
        cur = self.attn_norm(g, active, "attn_norm", il)
        beside = self.laurel(g, cur, il)
        cur = self.attn_post_norm(g, self.attention(g, cur, il), "attn_post_norm", il)
        cur = g.cb(add(cur, active), "attn_gated", il)
        both = g.cb(scale(add(cur, beside), inv_sqrt(2)), "attn_laurel", il)
        cur = self.feed_forward(g, self.ffn_norm(g, both, "ffn_norm", il), il)
        cur = g.cb(self.ffn_post_norm(g, cur), "ffn_post_norm", il)
        cur = g.cb(add(cur, both), "attn_ffw_laurel_gated", il)
        corrected = self.altup.correct(g, predicted, cur, il)
        rest = add(drop_first_stream(corrected), self._layer_input(g, corrected, il))
        return concat(stream(corrected, 0), rest, 2)

    def _layer_input(self, g: GraphBuilder, corrected: Tensor, il: int) -> Tensor:
        """Gate the layer's own input by the first stream. -> [n_embd, n_tokens]"""
        cur = mul(stream(corrected, 0), self.correct_scale)
        return self.gate(g, cur, stream(g.get_shared("inp_per_layer"), il), il)


class Gemma3n(SharedKVDecoder):
    arch = "gemma3n"
    HParams = Gemma3nHParams
    sizes = {30: "E2B", 35: "E4B"}
    hp: Gemma3nHParams

    def declare_ends(self, w: Weights) -> None:
        super().declare_ends(w)
        self.altup = AltUpEnds(w, self.hp.n_embd, N_ALTUP)
        self.per_layer = PerLayerInputs(w, self.hp, N_EMBD_PER_LAYER)

    def layer(self, w: Weights, il: int) -> Gemma3nLayer:
        return Gemma3nLayer(w, self.hp, il)

    def embed(self, g: GraphBuilder) -> Tensor:
        cur = super().embed(g)
        g.shared("inp_per_layer", lambda: self.per_layer(g, cur))
        return self.altup.stack(g, cur)

    def skips_unused_rows(self, g: GraphBuilder) -> bool:
        return False

    def finish(self, g: GraphBuilder, cur: Tensor, selected: bool) -> None:
        super().finish(g, self.altup.merge(g, cur), selected)
