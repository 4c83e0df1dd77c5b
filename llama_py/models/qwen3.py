"""Qwen3, dense: queries and keys are normed head by head before RoPE (models/qwen3.cpp)."""

from __future__ import annotations

from ggml_py.tensor import Tensor
from llama_py.hparams import ROPE_NEOX, HParams, Keys
from llama_py.inputs import GraphParams, InputAttnKV
from llama_py.models._attention import QKV
from llama_py.models._base import Model
from llama_py.models._decoder import Decoder
from llama_py.models._graph import inv_sqrt
from llama_py.weights import LayerLoader, WeightLoader


class Qwen3HParams(HParams):
    rope_type = ROPE_NEOX

    def load(self, keys: Keys) -> None:
        self.load_rms_eps(keys)
        self.need_one_head_size(keys)
        self.n_cls_out = keys.count("classifier.output_labels") or 1


class Qwen3(Model):
    arch = "qwen3"
    hparams_class = Qwen3HParams
    hparams: Qwen3HParams

    def load_tensors(self, w: WeightLoader) -> None:
        self.load_embeddings(w)
        w.optional("cls.output.weight", self.hparams.n_embd, self.hparams.n_cls_out, use="MUL_MAT")
        for il in range(self.hparams.n_layer):
            t = w.layer(il)
            self.load_attention(t, il)
            self.load_feed_forward(t, il)

    def load_attention(self, t: LayerLoader, il: int) -> None:
        hp, n_embd, n_embd_head = self.hparams, self.hparams.n_embd, self.hparams.n_embd_head_k
        n_embd_q = n_embd_head * hp.n_head(il)
        t.norm("attn_norm", n_embd)
        t.qkv(n_embd, n_embd_q, hp.n_embd_k_gqa(il), hp.n_embd_v_gqa(il))
        t.matrix("attn_output", n_embd_q, n_embd)
        t.norm("attn_k_norm", n_embd_head)
        t.norm("attn_q_norm", n_embd_head)

    def load_feed_forward(self, t: LayerLoader, il: int) -> None:
        t.norm("ffn_norm", self.hparams.n_embd)
        t.gated_ffn(self.hparams.n_embd, self.hparams.n_ff(il))

    def graph(self, params: GraphParams) -> Qwen3Graph:
        return Qwen3Graph(self, params)


class Qwen3Graph(Decoder):
    model: Qwen3

    def attention(self, cur: Tensor, inp: InputAttnKV, inp_pos: Tensor, il: int) -> Tensor:
        layer = self.model.layers[il]
        q, k, v = self.build_qkv(layer, cur, il)
        q = self.cb(self.build_norm(q, layer.attn_q_norm, il), "Qcur_normed", il)
        q = self.cb(self.build_rope(q, inp_pos), "Qcur", il)
        k = self.cb(self.build_norm(k, layer.attn_k_norm, il), "Kcur_normed", il)
        k = self.cb(self.build_rope(k, inp_pos), "Kcur", il)
        kq_scale = inv_sqrt(self.hparams.n_embd_head_k)
        return self.build_attn(inp, layer.attn_output, QKV(q, k, v), il, kq_scale=kq_scale)

    def feed_forward(self, cur: Tensor, il: int) -> Tensor:
        layer = self.model.layers[il]
        cur = self.build_ffn(cur, il, up=layer.ffn_up, gate=layer.ffn_gate, down=layer.ffn_down)
        return self.cb(cur, "ffn_out", il)
