"""Llama 1 to 3, Mistral and Mixtral, and the many models of their shape (models/llama.cpp)."""

from __future__ import annotations

from ggml_py.tensor import Tensor
from llama_py.hparams import ROPE_NORMAL, HParams, Keys
from llama_py.inputs import GraphParams, InputAttnKV
from llama_py.models._base import Model
from llama_py.models._decoder import Decoder
from llama_py.models._graph import inv_sqrt
from llama_py.weights import WeightLoader


class LlamaHParams(HParams):
    rope_type = ROPE_NORMAL

    def load(self, keys: Keys) -> None:
        self.load_rms_eps(keys)
        self.need_one_head_size(keys)
        if self.n_rot != self.n_embd_head_k:
            raise keys.error(
                "rope.dimension_count", f"it must be the head size {self.n_embd_head_k}"
            )


class Llama(Model):
    arch = "llama"
    hparams_class = LlamaHParams

    def load_tensors(self, w: WeightLoader) -> None:
        hp, n_embd, n_expert = self.hparams, self.hparams.n_embd, self.hparams.n_expert
        self.load_embeddings(w)
        self.load_rope_factors(w)
        for il in range(hp.n_layer):
            n_embd_q, n_ff = hp.n_embd_head_k * hp.n_head(il), hp.n_ff(il)
            t = w.layer(il)
            t.norm("attn_norm", n_embd)
            t.qkv(n_embd, n_embd_q, hp.n_embd_k_gqa(il), hp.n_embd_v_gqa(il))
            t.matrix("attn_output", n_embd_q, n_embd, bias=True)
            t.norm("ffn_norm", n_embd)
            if n_expert == 0:
                t.matrix("ffn_gate", n_embd, n_ff, bias=True)
                t.matrix("ffn_down", n_ff, n_embd, bias=True)
                t.matrix("ffn_up", n_embd, n_ff, bias=True)
            else:
                t.matrix("ffn_gate_inp", n_embd, n_expert)
                t.matrix("ffn_gate_exps", n_embd, n_ff, n_expert, optional=True)
                t.matrix("ffn_down_exps", n_ff, n_embd, n_expert)
                t.matrix("ffn_up_exps", n_embd, n_ff, n_expert)

    def load_rope_factors(self, w: WeightLoader) -> None:
        """Per-frequency factors of long-context variants."""
        n = self.hparams.n_rot // 2
        self.rope_freqs = self.rope_long = self.rope_short = None
        if self.hparams.rope_scaling_type == "longrope":
            self.rope_long = w.optional("rope_factors_long.weight", n, use="ROPE")
            self.rope_short = w.optional("rope_factors_short.weight", n, use="ROPE")
        else:
            self.rope_freqs = w.optional("rope_freqs.weight", n, use="ROPE")

    def rope_factors(self, n_ctx_seq: int) -> Tensor | None:
        """Those for a context size (llama-model.cpp:get_rope_factors). F32 [n_rot / 2]"""
        if self.rope_freqs is not None:
            return self.rope_freqs
        return self.rope_long if n_ctx_seq > self.hparams.n_ctx_orig_yarn else self.rope_short

    def graph(self, params: GraphParams) -> LlamaGraph:
        return LlamaGraph(self, params)


class LlamaGraph(Decoder):
    model: Llama
    layer_sum = "ffn_out"

    def attention(self, cur: Tensor, inp: InputAttnKV, inp_pos: Tensor, il: int) -> Tensor:
        layer = self.model.layers[il]
        factors = self.model.rope_factors(self.cparams.n_ctx_seq)
        qkv = self.build_qkv(layer, cur, il)
        q = self.cb(self.build_rope(qkv.q, inp_pos, factors), "Qcur", il)
        k = self.cb(self.build_rope(qkv.k, inp_pos, factors), "Kcur", il)
        qkv = qkv._replace(q=q, k=k)
        kq_scale = inv_sqrt(self.hparams.n_embd_head_k)
        cur = self.build_attn(inp, layer.attn_output, qkv, il, kq_scale=kq_scale)
        return self.cb(cur, "attn_out", il)

    def feed_forward(self, cur: Tensor, il: int) -> Tensor:
        layer = self.model.layers[il]
        if self.hparams.n_expert:
            return self.build_moe_ffn(cur, layer, il)
        cur = self.build_ffn(cur, il, up=layer.ffn_up, gate=layer.ffn_gate, down=layer.ffn_down)
        return self.cb(cur, "ffn_out", il)
