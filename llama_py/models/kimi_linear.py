"""Kimi Linear: three delta net layers for each one with latent attention, experts after the first
layers (models/kimi-linear.cpp).

If llama.cpp would crash, the weights decide: queries may be projected to a small vector first
(attn_q_a, attn_q_b), and layers may lack shared experts.
"""

from __future__ import annotations

from ggml_py.ops import add, cont, mul, reshape, sigmoid, softplus
from ggml_py.tensor import Tensor
from llama_py.blocks.delta_net import Delta, build_recurrent_attn
from llama_py.blocks.kda import KDA
from llama_py.blocks.latent_attention import LatentAttention
from llama_py.graph.builder import GraphBuilder
from llama_py.memory.specs import StateSpec
from llama_py.models.trunks.decoder import Block, EarlyNormLayer, Layer
from llama_py.models.trunks.kimi import KimiHParams
from llama_py.models.trunks.latent import Latent
from llama_py.weights import Weights

NAMES = {
    "embd": "model.embed_tokens",
    "qr": "",
    "q": "",
    "kv_cmpr_pe": "",
    "kv_cmpr": "",
    "k_pe": "",
}
NAMES_UNPACKED = NAMES | {
    "kv": "",
    "k_nope_view": "",
    "Vcur_view": "",
    "Vcur_cont": "mla_V",
    "Qcur": "mla_Q",
    "Kcur": "mla_K",
}


class KimiLinearHParams(KimiHParams):
    expert_weights_norm = True


class KimiLinearKDA(KDA):
    parts_keep = StateSpec

    def __init__(self, w: Weights, n_embd: int, n_head: int, size: int, d_conv: int) -> None:
        super().__init__(w, n_embd, n_head, size, d_conv)
        self.a = w.tensor("ssm_a", 1, n_head)
        self.g_a = w.linear("ssm_g_a", n_embd, size, scaled=False)
        self.g_b = w.linear("ssm_g_b", size, self.n_inner, scaled=False)

    def __call__(self, g: GraphBuilder, cur: Tensor, il: int) -> Tensor:
        size, n_head, n_tokens = self.size, self.n_head, g.n_tokens
        q, k, v = self.project_and_convolve(g, cur, il)
        gate = self.f_b(g, self.f_a(g, cur))
        gate = softplus(add(g.cb(gate, "g1 f_b(f_a(cur))", il), self.dt))
        gate = mul(reshape(gate, size, n_head, n_tokens), reshape(self.a, 1, n_head, 1))
        gate = reshape(g.cb(gate, "kda_g1", il), size, n_head, *g.per_seq)  # log of the decay
        beta = reshape(self.beta(g, cur), 1, n_head, *g.per_seq)
        beta = sigmoid(g.cb(beta, "kda_beta", il))
        cur = reshape(cur, cur.ne[0], *g.per_seq)
        state = self.state(g, il)
        q, k = self.normalize_heads(g, q, k)
        x, states = Delta(q, k, v, gate, beta), g.inp_rs.mctx.get_s_l(il)
        output = build_recurrent_attn(g, states, x, state, il, flat=True)
        output = g.cb(cont(output), "attn_output", il)
        out_gate = self.g_b(g, self.g_a(g, reshape(cur, cur.ne[0], n_tokens)))
        out_gate = reshape(g.cb(out_gate, "g2 g_b(g_a(cur_2d))", il), size, n_head, n_tokens)
        return self.project(g, output, out_gate, il)


class KimiLinear(Latent):
    arch = "kimi-linear"
    HParams = KimiLinearHParams
    sizes = {27: "48B.A3B"}
    hp: KimiLinearHParams

    def declare(self, w: Weights) -> None:
        super().declare(w)
        self.names = NAMES if self.absorbed else NAMES_UNPACKED

    def layer(self, w: Weights, il: int) -> Layer:
        hp, n_embd = self.hp, self.hp.n_embd
        attention: Block
        if hp.layers[il].recurrent:
            attention = KimiLinearKDA(w, n_embd, *hp.kda_sizes)
        else:
            output = w.linear("attn_output", hp.n_embd_values(il), n_embd)
            attention = LatentAttention(
                w, hp.latent(il), absorbed=self.absorbed, output=output, name="mla_out"
            )
        return EarlyNormLayer(
            w.norm("attn_norm", n_embd),
            attention,
            w.norm("ffn_norm", n_embd),
            self.feed_forward(w, il, need_shexp=False, probs_bias="needed"),
        )
