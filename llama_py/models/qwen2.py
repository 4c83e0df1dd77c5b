"""Qwen2 and 2.5, dense: like Llama with biases on queries, keys and values (models/qwen2.cpp)."""

from __future__ import annotations

from ggml_py.tensor import Tensor
from llama_py.hparams import ROPE_NEOX, HParams, Keys
from llama_py.inputs import GraphParams, InputAttnKV
from llama_py.models._base import Model
from llama_py.models._decoder import Decoder
from llama_py.models._graph import inv_sqrt
from llama_py.weights import WeightLoader


class Qwen2HParams(HParams):
    rope_type = ROPE_NEOX

    def load(self, keys: Keys) -> None:
        self.load_rms_eps(keys)
        self.need_one_head_size(keys)


class Qwen2(Model):
    arch = "qwen2"
    hparams_class = Qwen2HParams

    def load_tensors(self, w: WeightLoader) -> None:
        hp, n_embd = self.hparams, self.hparams.n_embd
        self.load_embeddings(w, output_bias=True)
        for il in range(hp.n_layer):
            t, n_embd_q = w.layer(il), hp.n_embd_head_k * hp.n_head(il)
            t.norm("attn_norm", n_embd)
            t.qkv(n_embd, n_embd_q, hp.n_embd_k_gqa(il), hp.n_embd_v_gqa(il))
            t.matrix("attn_output", n_embd_q, n_embd)
            t.norm("ffn_norm", n_embd)
            t.gated_ffn(n_embd, hp.n_ff(il), scaled=False)

    def graph(self, params: GraphParams) -> Qwen2Graph:
        return Qwen2Graph(self, params)


class Qwen2Graph(Decoder):
    def attention(self, cur: Tensor, inp: InputAttnKV, inp_pos: Tensor, il: int) -> Tensor:
        layer = self.model.layers[il]
        qkv = self.build_qkv(layer, cur, il)
        q = self.cb(self.build_rope(qkv.q, inp_pos), "Qcur", il)
        k = self.cb(self.build_rope(qkv.k, inp_pos), "Kcur", il)
        qkv = qkv._replace(q=q, k=k)
        kq_scale = inv_sqrt(self.hparams.n_embd_head_k)
        return self.build_attn(inp, layer.attn_output, qkv, il, kq_scale=kq_scale)

    def feed_forward(self, cur: Tensor, il: int) -> Tensor:
        layer = self.model.layers[il]
        cur = self.build_ffn(cur, il, up=layer.ffn_up, gate=layer.ffn_gate, down=layer.ffn_down)
        return self.cb(cur, "ffn_out", il)
