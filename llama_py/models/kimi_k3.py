"""Kimi K3: Kimi Linear's two kinds of layers, each with another gate; experts that work in a
smaller space; and residual streams that later layers mix anew (models/kimi-k3.cpp)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ggml_py.ops import (
    add,
    concat,
    cont,
    dsv4_hc_pre,
    get_rows,
    mul,
    reshape,
    rms_norm,
    scale,
    sigmoid,
    soft_max,
    softplus,
    sum_rows,
    tanh,
    view,
)
from ggml_py.tensor import Tensor
from llama_py.hparams import Keys
from llama_py.inputs import GraphParams, InputRS
from llama_py.models._ffn import Activation
from llama_py.models._graph import inv_sqrt
from llama_py.models._kda import KDA, KDAHParams, KDAModel
from llama_py.weights import LayerLoader, WeightLoader

# Not named in this graph.
UNNAMED = (
    "q", "kv_cmpr_pe", "kv_cmpr", "k_pe", "q_nope", "q_pe", "q_nope_perm", "q_nope_absorbed",
    "q_nope_absorbed_perm", "Qcur", "kv_cmpr_reshape", "Kcur", "Vcur", "kv", "k_nope_view",
    "Vcur_view", "Vcur_cont", "conv_states_all",
)  # fmt: skip


class KimiK3HParams(KDAHParams):
    """n_embd_latent  size of what experts see
    gate_lower_bound  decays are exp of this times a sigmoid; None: of a softplus, as in Kimi Linear
    attn_res_block_size  every so many layers the residual stream is banked; 0: never
    """

    def load(self, keys: Keys) -> None:
        super().load(keys)
        bound = "kda.gate_lower_bound"
        self.gate_lower_bound = keys.number(bound) if keys.has(bound) else None
        self.n_expert_latent = keys.uint("expert_latent_length", 0)
        self.n_embd_latent = self.n_expert_latent or self.n_embd
        self.attn_res_block_size = keys.uint("attn_res.block_size")
        self.situ_beta = keys.number("activation.situ_beta")
        self.situ_linear_beta = keys.number("activation.situ_linear_beta")
        if self.situ_beta <= 0:
            raise keys.error("activation.situ_beta", "it must be positive")


class KimiK3(KDAModel):
    arch = "kimi-k3"
    hparams_class = KimiK3HParams
    supports_rs_rollback = True
    hparams: KimiK3HParams

    def load_tensors(self, w: WeightLoader) -> None:
        super().load_tensors(w)
        self.output_res_score: Tensor | None = None
        if self.hparams.attn_res_block_size:
            name = "output_res_score.weight"
            self.output_res_score = w.tensor(name, self.hparams.n_embd, use="MUL")

    def load_kda(self, t: LayerLoader) -> None:
        super().load_kda(t)
        hp = self.hparams
        t.tensor("ssm_a", hp.n_head(), use="MUL")
        t.matrix("ssm_g", hp.n_embd, hp.kda_d_inner, scaled=False)

    def load_mla(self, t: LayerLoader) -> None:
        super().load_mla(t)
        hp, n_embd = self.hparams, self.hparams.n_embd
        n_values = hp.n_head() * hp.n_embd_head_v_mla
        t.matrix("attn_gate", n_embd, n_values, scaled=False, optional=True)
        t.matrix("attn_output", n_values, n_embd, scaled=False)

    def load_feed_forward(self, t: LayerLoader, il: int, *, need_shexp: bool, need_b: bool) -> None:
        hp, n_embd, n_latent = self.hparams, self.hparams.n_embd, self.hparams.n_embd_latent
        t.norm("ffn_norm", n_embd)
        if hp.attn_res_block_size:
            t.norm("attn_res_score", n_embd)
            t.norm("ffn_res_score", n_embd)
        if il < hp.n_layer_dense_lead:
            t.gated_ffn(n_embd, hp.n_ff(il), scaled=False)
            return
        n_ff, n_expert = hp.n_ff_exp, hp.n_expert
        t.matrix("ffn_gate_inp", n_embd, n_expert, scaled=False)
        t.tensor("exp_probs_b.bias", n_expert, use="ADD", optional=not need_b)
        t.gate_up_exps(n_latent, n_ff, n_expert, scaled=False)
        t.matrix("ffn_down_exps", n_ff, n_latent, n_expert, scaled=False)
        if hp.n_expert_latent:
            t.matrix("ffn_routed_down", n_embd, n_latent, scaled=False)
            t.matrix("ffn_routed_up", n_latent, n_embd, scaled=False)
            t.norm("ffn_routed_norm", n_latent, optional=True)
        t.gated_ffn(n_embd, hp.n_ff_shexp, "_shexp", scaled=False, optional=not need_shexp)

    def graph(self, params: GraphParams) -> KimiK3Graph:
        return KimiK3Graph(self, params)


class KimiK3Graph(KDA):
    model: KimiK3
    hparams: KimiK3HParams
    names: Mapping[str, str] = dict.fromkeys(UNNAMED, "")

    def build(self) -> None:
        every = self.hparams.attn_res_block_size
        self.banked: Tensor | None = None  # [n_embd, streams, n_tokens]
        stream = self.cb(self.build_inp_embd(self.model.token_embd), "inp_embd")
        inp = self.build_kda_inputs()
        inp_out_ids = self.build_inp_out_ids()
        for il, layer in enumerate(self.model.layers):
            cur = self.mix(stream, layer.get("attn_res_score"), il)
            bank = every > 0 and il % every == 0
            if bank:  # what comes after it starts from this layer's result alone
                self.bank(stream)
            cur = self.cb(self.build_norm(cur, layer.attn_norm, il), "attn_norm", il)
            self.expand(cur)
            if self.hparams.is_recr(il):
                cur = self.build_kda(inp.recr, cur, il)
            else:
                cur = self.attention(inp.attn, cur, il)
            stream = self.cb(cur if bank else add(stream, cur), "prefix_sum_attn", il)
            cur = self.mix(stream, layer.get("ffn_res_score"), il)
            cur = self.cb(self.build_norm(cur, layer.ffn_norm, il), "ffn_norm", il)
            stream = self.layer_out(add(stream, self.feed_forward(cur, il)), il)
        cur = get_rows(self.mix(stream, self.model.output_res_score), inp_out_ids)
        self.res.t_embd = self.cb(self.build_norm(cur, self.model.output_norm), "result_norm")
        self.build_head(self.res.t_embd)  # [n_vocab, n_outputs]

    def bank(self, stream: Tensor) -> None:
        """Keep a residual stream [n_embd, n_tokens] for later layers."""
        one = reshape(stream, self.n_embd, 1, self.n_tokens)
        self.banked = one if self.banked is None else concat(self.banked, one, 1)

    def mix(self, stream: Tensor, score: Tensor | None, il: int = -1) -> Tensor:
        """The banked streams and this one, weighted by a softmax of <norm(stream), score>.

        stream [n_embd, n_tokens], score [n_embd] -> [n_embd, n_tokens]
        """
        if self.banked is None or score is None:
            return stream
        n, eps = self.banked.ne[1], self.hparams.f_norm_rms_eps
        scores = sum_rows(mul(rms_norm(self.banked, eps), score))
        mine = sum_rows(mul(rms_norm(stream, eps), score))
        scores = concat(reshape(scores, n, self.n_tokens), mine, 0)
        probs = self.cb(soft_max(scores), "res_probs", il)  # [n + 1, n_tokens]
        banked_probs = cont(view(probs, (n, self.n_tokens)))
        my_prob = cont(view(probs, (1, self.n_tokens), offset=n))
        return add(dsv4_hc_pre(self.banked, banked_probs), mul(stream, my_prob))

    def attention(self, inp: Any, cur: Tensor, il: int) -> Tensor:
        """Latent attention whose result is gated. [n_embd, n_tokens] -> the same"""
        layer, kq_scale = self.model.layers[il], inv_sqrt(self.hparams.n_embd_head_k_mla)
        out = self.latent_attention(inp, None, cur, il, kq_scale=kq_scale)
        if layer.attn_gate is not None:
            gate = sigmoid(self.build_mm(layer.attn_gate, cur))
            out = self.cb(mul(out, gate), "mla_gated", il)
        return self.cb(self.build_mm(layer.attn_output, out), "mla_out", il)

    def build_kda(self, inp: InputRS, cur: Tensor, il: int) -> Tensor:
        layer, hp, n_tokens = self.model.layers[il], self.hparams, self.n_tokens
        size, n_head = hp.n_embd_head_kda, hp.n_head()
        per_seq = (self.ubatch.n_seq_tokens, self.ubatch.n_seqs)
        q, k, v = self.build_kda_qkv(inp, cur, il)
        for t, name in ((q, "kda_q_conv"), (k, "kda_k_conv"), (v, "kda_v_conv")):
            self.cb(t, name, il)
        gate = reshape(self.decay(cur, il), size, n_head, *per_seq)
        beta = reshape(self.build_mm(layer.ssm_beta, cur), 1, n_head, *per_seq)
        beta = self.cb(sigmoid(beta), "kda_beta", il)
        normed = reshape(cur, cur.ne[0], *per_seq)
        state = self.build_kda_state(inp, il)
        q, k = self.build_l2_norm(q), self.build_l2_norm(k)
        states = inp.mctx.get_s_l(il)
        output = cont(self.build_recurrent_attn(inp, states, q, k, v, gate, beta, state, il))
        self.cb(output, "kda_scan_out", il)
        out_gate = self.build_mm(layer.ssm_g, reshape(normed, cur.ne[0], n_tokens))
        out_gate = self.cb(reshape(out_gate, size, n_head, n_tokens), "kda_g2", il)
        output = self.build_norm(reshape(output, size, n_head, n_tokens), layer.ssm_norm, il)
        output = mul(self.cb(output, "kda_normed", il), sigmoid(out_gate))
        cur = self.build_mm(layer.attn_output, cont(output, hp.kda_d_inner, n_tokens))
        return self.cb(cur, "kda_out", il)

    def decay(self, cur: Tensor, il: int) -> Tensor:
        """Log of each channel's decay; ssm_a is -exp(A_log). -> [S, H, n_tokens]"""
        layer, hp = self.model.layers[il], self.hparams
        ne = (hp.n_embd_head_kda, hp.n_head(), self.n_tokens)
        gate = self.build_mm(layer.ssm_f_b, self.build_mm(layer.ssm_f_a, cur))
        gate, a = add(gate, layer.ssm_dt), reshape(layer.ssm_a, 1, hp.n_head(), 1)
        if hp.gate_lower_bound is None:
            gate = mul(reshape(softplus(gate), *ne), a)
        else:
            gate = mul(reshape(gate, *ne), a)
            gate = scale(sigmoid(scale(gate, -1.0)), hp.gate_lower_bound)
        return self.cb(gate, "kda_g1", il)

    def feed_forward(self, cur: Tensor, il: int) -> Tensor:
        layer, hp = self.model.layers[il], self.hparams
        if il < hp.n_layer_dense_lead:
            return self.cb(self.situ_ffn(cur, il, ""), "ffn_out", il)
        routed = cur
        if hp.n_expert_latent:
            routed = self.build_mm(layer.ffn_routed_down, cur)
        moe = self.build_moe_ffn(
            routed, layer, il, gating=hp.expert_gating_func, norm_w=hp.expert_weights_norm,
            w_scale=hp.expert_weights_scale, logits=self.build_router(cur, layer, il),
            act=Activation("situ", self.situ_gate, "situ", self.situ),
        )  # fmt: skip
        if layer.get("ffn_routed_norm") is not None:
            moe = self.build_norm(moe, layer.ffn_routed_norm, il)
        if hp.n_expert_latent:
            moe = self.build_mm(layer.ffn_routed_up, moe)
        if layer.ffn_up_shexp is not None:
            moe = add(moe, self.cb(self.situ_ffn(cur, il, "_shexp"), "ffn_shexp", il))
        return self.cb(moe, "ffn_out", il)

    def situ_ffn(self, cur: Tensor, il: int, kind: str) -> Tensor:
        """The dense feed-forward, or with kind "_shexp" the shared experts."""
        layer = self.model.layers[il]
        gate, up, down = (layer.get(f"ffn_{part}{kind}") for part in ("gate", "up", "down"))
        return self.build_mm(down, self.situ(self.build_mm(gate, cur), self.build_mm(up, cur)))

    def situ_gate(self, gate: Tensor) -> Tensor:
        """beta tanh(gate / beta) sigmoid(gate): a SiLU with a bound"""
        return mul(_bounded(gate, self.hparams.situ_beta), sigmoid(gate))

    def situ(self, gate: Tensor, up: Tensor) -> Tensor:
        """situ_gate(gate) * up, up bounded too if situ_linear_beta is positive"""
        bound = self.hparams.situ_linear_beta
        gate = self.situ_gate(gate)
        return mul(gate, _bounded(up, bound) if bound > 0 else up)


def _bounded(x: Tensor, bound: float) -> Tensor:
    return scale(tanh(scale(x, 1.0 / bound)), bound)
