"""Gemma 3n: several streams of which layers compute one, an input of its own for each layer,
layers that attend to what an earlier one has stored (models/gemma3n.cpp).

Where llama.cpp leaves out a bias or scale of queries, in layers without keys of their own, it is
as the weights say.
"""

from __future__ import annotations

from ggml_py.ops import add, concat, gelu, mean, mul, relu, reshape, scale, sqr, sqrt, sub, sum_rows
from ggml_py.tensor import Tensor
from llama_py.blocks.altup import AltUp, AltUpEnds, others, stream
from llama_py.blocks.attention import QKV, Attention, attend_again
from llama_py.blocks.functions import inv_sqrt
from llama_py.blocks.per_layer import PerLayerInputs
from llama_py.blocks.rope import rope
from llama_py.blocks.softmax import Scores
from llama_py.geometry import ROPE_NEOX
from llama_py.graph.builder import GraphBuilder
from llama_py.hparams import RMS_EPS, WindowedHParams
from llama_py.keys import Keys, number, uint
from llama_py.linear import Norm
from llama_py.memory.kept import Kept, SameAs
from llama_py.models._decoder import Decoder
from llama_py.weights import Weights

# Sizes that all models share; their files are not asked.
N_ALTUP, N_EMBD_PER_LAYER, LAUREL_RANK = 4, 256, 64
N_LAYER_KV = 20  # layers with keys and values of their own
N_LAYER_SPARSE = 10  # layers whose feed-forward keeps large gates only
SPARSITY_STD = 1.6448533535003662  # 95 % of a normal distribution are below


class Gemma3nHParams(WindowedHParams):
    rope_type = ROPE_NEOX
    required_heads = equal_heads = True
    n_pattern = 5
    f_norm_rms_eps: float = number(RMS_EPS, least=0)
    final_logit_softcap: float = number("final_logit_softcapping", 30.0)
    n_swa: int = uint("attention.sliding_window", least=1)

    def load(self, keys: Keys) -> None:
        super().load(keys)
        shared = self.n_layer > N_LAYER_KV
        if shared and self.swa_layers[N_LAYER_KV - 2 : N_LAYER_KV] != (True, False):
            raise keys.error(
                "attention.sliding_window_pattern",
                f"of layers {N_LAYER_KV - 2} and {N_LAYER_KV - 1}, which later ones attend to, the"
                " first must have a window, the second none",
            )


class Gemma3nAttention(Attention):
    """Values are normed too; from layer N_LAYER_KV on there are queries only."""

    def __call__(self, g: GraphBuilder, cur: Tensor, il: int) -> Tensor:
        if il < N_LAYER_KV:
            return super().__call__(g, cur, il)
        d, n_head = self.qkv.heads[0]
        q = g.cb(self.qkv.rows(g, cur, il).q, "Qcur", il)
        assert self.q_norm is not None
        q = self.q_norm(g, reshape(q, d, n_head, g.n_tokens), "Qcur_normed", il)
        q = g.cb(rope(g, q, il), "Qcur_pos", il)
        return self.output(g, attend_again(g, q, il, Scores(self.kq_scale)))

    def normed(self, g: GraphBuilder, qkv: QKV, il: int) -> QKV:
        q, k, v = super().normed(g, qkv, il)
        return QKV(q, k, Norm()(g, v, "Vcur_normed", il))

    def place(self, g: GraphBuilder, qkv: QKV, il: int) -> tuple[Tensor, Tensor]:
        q, k = (rope(g, x, il) for x in (qkv.q, qkv.k))
        return g.cb(q, "Qcur_pos", il), g.cb(k, "Kcur_pos", il)


class SparseFeedForward:
    """down(up x * gelu(gate x)), in the first layers of gates far above a token's mean only."""

    def __init__(self, w: Weights, n_embd: int, n_ff: int) -> None:
        self.gate = w.linear("ffn_gate", n_embd, n_ff, scaled=False)
        self.up = w.linear("ffn_up", n_embd, n_ff, scaled=False)
        self.down = w.linear("ffn_down", n_ff, n_embd, scaled=False)

    def __call__(self, g: GraphBuilder, cur: Tensor, il: int) -> Tensor:
        up, gate = self.up(g, cur), self.gate(g, cur)
        if il < N_LAYER_SPARSE:
            gate = _above(gate)
        return g.cb(self.down(g, mul(up, gelu(gate))), "ffn_out", il)


def _above(x: Tensor) -> Tensor:
    """What is left of each row above its mean and SPARSITY_STD deviations."""
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
        self.attention = Gemma3nAttention(w, hp, q_norm=q_norm, k_norm=k_norm, kq_scale=1.0)
        self.attn_post_norm = w.norm("post_attention_norm", n_embd)
        self.ffn_norm = w.norm("ffn_norm", n_embd)
        self.feed_forward = SparseFeedForward(w, n_embd, shape.n_ff)
        self.ffn_post_norm = w.norm("post_ffw_norm", n_embd)
        self.inp_gate = w.linear("inp_gate", n_embd, N_EMBD_PER_LAYER, scaled=False)
        self.proj = w.linear("proj", N_EMBD_PER_LAYER, n_embd, scaled=False)
        self.post_norm = w.norm("post_norm", n_embd)

    def __call__(self, g: GraphBuilder, cur: Tensor, il: int, last: bool) -> Tensor:
        """streams -> the same"""
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
        rest = add(others(corrected), self._layer_input(g, corrected, il))
        return concat(stream(corrected, 0), rest, 2)

    def _layer_input(self, g: GraphBuilder, corrected: Tensor, il: int) -> Tensor:
        """The layer's own input, gated by the first stream. -> [n_embd, n_tokens]"""
        cur = mul(stream(corrected, 0), self.correct_scale)
        cur = g.cb(gelu(self.inp_gate(g, cur)), "first_prediction_gated", il)
        cur = mul(cur, stream(g.made("inp_per_layer"), il))
        cur = self.proj(g, g.cb(cur, "first_prediction_scaled", il))
        return self.post_norm(g, cur, "first_prediction_out", il)


class Gemma3n(Decoder):
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

    def keeps(self, il: int) -> Kept:
        if il < N_LAYER_KV:
            return super().keeps(il)
        return (SameAs(N_LAYER_KV - (2 if self.hp.swa_layers[il] else 1)),)

    def embed(self, g: GraphBuilder) -> Tensor:
        # embeddings of images come scaled
        factor = self.hp.n_embd**0.5 if g.ubatch.token is not None else 1.0
        cur = g.cb(scale(super().embed(g), factor), "inp_scaled")
        g.shared("inp_per_layer", lambda: self.per_layer(g, cur))
        return self.altup.stack(g, cur)

    def selects_early(self, g: GraphBuilder) -> bool:
        return False

    def finish(self, g: GraphBuilder, cur: Tensor, selected: bool) -> None:
        super().finish(g, self.altup.merge(g, cur), selected)
