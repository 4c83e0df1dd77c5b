"""Kimi Linear: three delta net layers for each one with latent attention, experts after the first
layers (models/kimi-linear.cpp).

Where llama.cpp would crash it is as the weights say: queries may come by way of a small vector
(attn_q_a, attn_q_b), and layers may have no shared experts.
"""

from __future__ import annotations

from collections.abc import Mapping

from ggml_py.ops import add, cont, cpy, get_rows, mul, reshape, sigmoid, softplus, view
from ggml_py.tensor import Tensor
from llama_py.hparams import Keys
from llama_py.inputs import GraphParams, InputRS
from llama_py.models._graph import inv_sqrt
from llama_py.models._kda import KDA, KDAHParams, KDAModel
from llama_py.weights import LayerLoader

NAMES = {"q": "", "kv_cmpr_pe": "", "kv_cmpr": "", "k_pe": ""}
NAMES_UNPACKED = NAMES | {
    "kv": "", "k_nope_view": "", "Vcur_view": "", "Vcur_cont": "mla_V", "Qcur": "mla_Q",
    "Kcur": "mla_K",
}  # fmt: skip


class KimiLinearHParams(KDAHParams):
    def load(self, keys: Keys) -> None:
        super().load(keys)
        self.expert_weights_norm = True


class KimiLinear(KDAModel):
    arch = "kimi-linear"
    hparams_class = KimiLinearHParams
    hparams: KimiLinearHParams

    def load_kda(self, t: LayerLoader) -> None:
        super().load_kda(t)
        hp = self.hparams
        t.tensor("ssm_a", 1, hp.n_head(), use="MUL")
        t.matrix("ssm_g_a", hp.n_embd, hp.n_embd_head_kda, scaled=False)
        t.matrix("ssm_g_b", hp.n_embd_head_kda, hp.kda_d_inner, scaled=False)

    def load_mla(self, t: LayerLoader) -> None:
        super().load_mla(t)
        hp = self.hparams
        t.matrix("attn_output", hp.n_head() * hp.n_embd_head_v_mla, hp.n_embd)

    def graph(self, params: GraphParams) -> KimiLinearGraph:
        return KimiLinearGraph(self, params)


class KimiLinearGraph(KDA):
    model: KimiLinear
    hparams: KimiLinearHParams

    def build(self) -> None:
        hp = self.hparams
        self.names: Mapping[str, str] = NAMES if hp.absorbed else NAMES_UNPACKED
        cur = self.cb(self.build_inp_embd(self.model.token_embd), "model.embed_tokens")
        inp = self.build_kda_inputs()
        inp_out_ids = self.build_inp_out_ids()
        kq_scale = inv_sqrt(hp.n_embd_head_k_mla)
        for il, layer in enumerate(self.model.layers):
            residual = cur
            cur = self.cb(self.build_norm(cur, layer.attn_norm, il), "attn_norm", il)
            self.expand(cur)
            if hp.is_recr(il):
                cur = self.build_kda(inp.recr, cur, il)
            else:
                wo = layer.attn_output
                cur = self.latent_attention(inp.attn, wo, cur, il, kq_scale=kq_scale)
                self.cb(cur, "mla_out", il)
            if il == self.n_layer - 1:  # only outputs go on
                cur = get_rows(cur, inp_out_ids)
                residual = get_rows(residual, inp_out_ids)
            residual = self.cb(add(cur, residual), "ffn_inp", il)
            cur = self.cb(self.build_norm(residual, layer.ffn_norm, il), "ffn_norm", il)
            cur = self.layer_out(add(self.feed_forward(cur, il), residual), il)
        self.res.t_embd = self.cb(self.build_norm(cur, self.model.output_norm), "result_norm")
        self.build_head(self.res.t_embd)  # [n_vocab, n_outputs]

    def build_kda(self, inp: InputRS, cur: Tensor, il: int) -> Tensor:
        layer, hp, n_tokens = self.model.layers[il], self.hparams, self.n_tokens
        size, n_head = hp.n_embd_head_kda, hp.n_head()
        per_seq = (self.ubatch.n_seq_tokens, self.ubatch.n_seqs)
        q, k, v = self.build_kda_qkv(inp, cur, il)
        gate = self.build_mm(layer.ssm_f_b, self.build_mm(layer.ssm_f_a, cur))
        gate = softplus(add(self.cb(gate, "g1 f_b(f_a(cur))", il), layer.ssm_dt))
        gate = mul(reshape(gate, size, n_head, n_tokens), reshape(layer.ssm_a, 1, n_head, 1))
        gate = reshape(self.cb(gate, "kda_g1", il), size, n_head, *per_seq)  # log of the decay
        beta = reshape(self.build_mm(layer.ssm_beta, cur), 1, n_head, *per_seq)
        beta = sigmoid(self.cb(beta, "kda_beta", il))
        cur = reshape(cur, cur.ne[0], *per_seq)
        state = self.build_kda_state(inp, il)
        q, k = self.build_l2_norm(q), self.build_l2_norm(k)
        output, new_state = self.build_delta_net(q, k, v, gate, beta, state, il)
        output = self.cb(cont(output), "attn_output", il)
        all_states, n = inp.mctx.get_s_l(il), hp.n_embd_s
        cells = view(all_states, (n * per_seq[1],), offset=inp.mctx.get_head() * n)
        self.expand(cpy(self.cb(new_state, "new_state", il), cells))
        cur = reshape(cur, cur.ne[0], n_tokens)
        out_gate = self.build_mm(layer.ssm_g_b, self.build_mm(layer.ssm_g_a, cur))
        out_gate = reshape(self.cb(out_gate, "g2 g_b(g_a(cur_2d))", il), size, n_head, n_tokens)
        output = self.build_norm(reshape(output, size, n_head, n_tokens), layer.ssm_norm, il)
        output = mul(self.cb(output, "kda_normed", il), sigmoid(out_gate))
        cur = self.build_mm(layer.attn_output, cont(output, hp.kda_d_inner, n_tokens))
        return self.cb(cur, "kda_out", il)
