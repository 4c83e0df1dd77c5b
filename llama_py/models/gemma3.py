"""Gemma 3: most layers see a window of tokens; each block's result is normed once more
(models/gemma3.cpp)."""

from __future__ import annotations

from ggml_py.ops import add, get_rows, scale
from ggml_py.tensor import Tensor
from llama_py.hparams import ROPE_NEOX, HParams, Keys
from llama_py.inputs import GraphParams, InputAttnKV, InputAttnKVISWA
from llama_py.models._attention import QKV
from llama_py.models._base import GraphBuilder, Model
from llama_py.models._ffn import GELU
from llama_py.models._graph import inv_sqrt
from llama_py.weights import WeightLoader

N_LAYER_27B = 62  # the largest model scales queries by another size


class Gemma3HParams(HParams):
    rope_type = ROPE_NEOX

    def load(self, keys: Keys) -> None:
        self.load_rms_eps(keys)
        self.need_one_head_size(keys)
        self.load_swa(keys, 6)
        self.final_logit_softcap = keys.number("final_logit_softcapping", 0.0)
        is_27b = self.n_layer == N_LAYER_27B
        self.attention_scale = inv_sqrt(
            self.n_embd // self.n_head() if is_27b else self.n_embd_head_k
        )


class Gemma3(Model):
    arch = "gemma3"
    hparams_class = Gemma3HParams
    hparams: Gemma3HParams

    def load_tensors(self, w: WeightLoader) -> None:
        hp, n_embd, n_embd_head = self.hparams, self.hparams.n_embd, self.hparams.n_embd_head_k
        self.load_embeddings(w)
        for il in range(hp.n_layer):
            t, n_embd_q = w.layer(il), n_embd_head * hp.n_head(il)
            t.norm("attn_norm", n_embd)
            t.qkv(n_embd, n_embd_q, hp.n_embd_k_gqa(il), hp.n_embd_v_gqa(il))
            t.matrix("attn_output", n_embd_q, n_embd)
            t.norm("post_attention_norm", n_embd)
            t.norm("attn_k_norm", n_embd_head)
            t.norm("attn_q_norm", n_embd_head)
            t.norm("ffn_norm", n_embd)
            t.gated_ffn(n_embd, hp.n_ff(il), scaled=False)
            t.norm("post_ffw_norm", n_embd)

    def graph(self, params: GraphParams) -> Gemma3Graph:
        return Gemma3Graph(self, params)


class Gemma3Graph(GraphBuilder):
    model: Gemma3
    hparams: Gemma3HParams

    def build(self) -> None:
        layers = self.model.layers
        embd = self.build_inp_embd(self.model.token_embd)
        # embeddings of images come scaled
        factor = self.n_embd**0.5 if self.ubatch.token is not None else 1.0
        cur = self.cb(scale(embd, factor), "inp_scaled")
        inp_pos = self.build_inp_pos()
        inp = self.build_attn_inp_kv_iswa()
        inp_out_ids = self.build_inp_out_ids()
        for il, layer in enumerate(layers):
            residual = cur
            cur = self.cb(self.build_norm(cur, layer.attn_norm, il), "attn_norm", il)
            cur = self.attention(cur, inp, inp_pos, il)
            if il == self.n_layer - 1:  # only outputs go on
                cur = get_rows(cur, inp_out_ids)
                residual = get_rows(residual, inp_out_ids)
            cur = self.build_norm(cur, layer.post_attention_norm, il)
            residual = self.cb(add(self.cb(cur, "attn_post_norm", il), residual), "sa_out", il)
            cur = self.cb(self.build_norm(residual, layer.ffn_norm, il), "ffn_norm", il)
            cur = self.build_ffn(
                cur, il, up=layer.ffn_up, gate=layer.ffn_gate, down=layer.ffn_down, act=GELU
            )
            cur = self.build_norm(self.cb(cur, "ffn_out", il), layer.post_ffw_norm)
            cur = self.layer_out(add(self.cb(cur, "ffn_post_norm", il), residual), il)
        self.res.t_embd = self.cb(self.build_norm(cur, self.model.output_norm), "result_norm")
        self.build_head(self.res.t_embd)  # [n_vocab, n_outputs]

    def attention(
        self, cur: Tensor, inp: InputAttnKV | InputAttnKVISWA, inp_pos: Tensor, il: int
    ) -> Tensor:
        """[n_embd, n_tokens] -> the same"""
        layer, swa = self.model.layers[il], self.hparams.is_swa(il)
        q, k, v = self.build_qkv(layer, cur, il)
        q = self.cb(self.build_norm(q, layer.attn_q_norm, il), "Qcur_normed", il)
        q = self.cb(self.build_rope(q, inp_pos, swa=swa), "Qcur", il)
        k = self.cb(self.build_norm(k, layer.attn_k_norm, il), "Kcur_normed", il)
        k = self.cb(self.build_rope(k, inp_pos, swa=swa), "Kcur", il)
        q = scale(q, self.hparams.attention_scale)
        return self.build_attn(inp, layer.attn_output, QKV(q, k, v), il, kq_scale=1.0)
