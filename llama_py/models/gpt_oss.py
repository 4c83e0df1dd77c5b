"""gpt-oss: experts in every layer, every other layer with a window, a sink for each head's
attention (models/openai-moe.cpp)."""

from __future__ import annotations

from ggml_py.ops import add, get_rows
from ggml_py.tensor import Tensor
from llama_py.hparams import ROPE_NEOX, HParams, Keys
from llama_py.inputs import GraphParams, InputAttnKV, InputAttnKVISWA
from llama_py.models._attention import QKV
from llama_py.models._base import GraphBuilder, Model
from llama_py.models._ffn import SWIGLU_OAI
from llama_py.models._graph import inv_sqrt
from llama_py.weights import WeightLoader


class GptOssHParams(HParams):
    rope_type = ROPE_NEOX

    def load(self, keys: Keys) -> None:
        self.load_rms_eps(keys)
        self.need_one_head_size(keys)
        if self.n_rot != self.n_embd_head_k:
            raise keys.error(
                "rope.dimension_count", f"it must be the head size {self.n_embd_head_k}"
            )
        self.load_swa(keys, 2)
        if self.n_swa == 0:
            raise keys.error("attention.sliding_window", "it must be at least 1")
        self.rope_freq_scale_train_swa = self.rope_freq_scale_train
        base = self.rope_freq_base_train
        self.rope_freq_base_train_swa = keys.number("rope.freq_base_swa", base)
        if self.n_expert == 0:
            raise keys.error("expert_count", "it must be at least 1")
        self.n_ff_exp = keys.uints("expert_feed_forward_length", self.n_layer_all)[0]


class GptOss(Model):
    arch = "gpt-oss"
    hparams_class = GptOssHParams
    hparams: GptOssHParams

    def load_tensors(self, w: WeightLoader) -> None:
        hp, n_embd, n_ff, n_expert = (
            self.hparams, self.hparams.n_embd, self.hparams.n_ff_exp, self.hparams.n_expert
        )  # fmt: skip
        self.load_embeddings(w)
        for il in range(hp.n_layer):
            t, n_embd_q = w.layer(il), hp.n_embd_head_k * hp.n_head(il)
            t.norm("attn_norm", n_embd)
            t.norm("post_attention_norm", n_embd)
            t.qkv(n_embd, n_embd_q, hp.n_embd_k_gqa(il), hp.n_embd_v_gqa(il))
            t.matrix("attn_output", n_embd_q, n_embd, bias="needed")
            t.tensor("attn_sinks.weight", hp.n_head(il), use="FLASH_ATTN_EXT")
            t.matrix("ffn_gate_inp", n_embd, n_expert, bias="needed")
            for stem, *ne in (
                ("ffn_gate_exps", n_embd, n_ff),
                ("ffn_up_exps", n_embd, n_ff),
                ("ffn_down_exps", n_ff, n_embd),
            ):
                t.matrix(stem, *ne, n_expert, bias="needed", scaled=False)

    def graph(self, params: GraphParams) -> GptOssGraph:
        return GptOssGraph(self, params)


class GptOssGraph(GraphBuilder):
    model: GptOss

    def build(self) -> None:
        cur = self.build_inp_embd(self.model.token_embd)
        inp_pos = self.build_inp_pos()
        inp = self.build_attn_inp_kv_iswa()
        inp_out_ids = self.build_inp_out_ids()
        masked = self.cparams.embeddings_nextn_masked
        for il, layer in enumerate(self.model.layers):
            residual = cur
            cur = self.cb(self.build_norm(cur, layer.attn_norm, il), "attn_norm", il)
            cur = self.attention(cur, inp, inp_pos, il)
            if masked and il == self.n_layer - 1:  # only outputs go on
                cur = get_rows(cur, inp_out_ids)
                residual = get_rows(residual, inp_out_ids)
            residual = self.cb(add(cur, residual), "ffn_inp", il)
            cur = self.build_norm(residual, layer.post_attention_norm, il)
            cur = self.build_moe_ffn(
                self.cb(cur, "attn_post_norm", il), layer, il, gating="softmax_weight",
                norm_w=False, act=SWIGLU_OAI,
            )  # fmt: skip
            cur = self.layer_out(add(cur, residual), il)
        self.res.t_h_nextn = cur
        if not masked:
            cur = get_rows(cur, inp_out_ids)
        self.res.t_embd = self.cb(self.build_norm(cur, self.model.output_norm), "result_norm")
        self.build_head(self.res.t_embd)  # [n_vocab, n_outputs]

    def attention(
        self, cur: Tensor, inp: InputAttnKV | InputAttnKVISWA, inp_pos: Tensor, il: int
    ) -> Tensor:
        """[n_embd, n_tokens] -> the same"""
        layer, swa = self.model.layers[il], self.hparams.is_swa(il)
        q, k, v = self.build_qkv(layer, cur, il)
        q = self.cb(self.build_rope(q, inp_pos, swa=swa), "Qcur", il)
        k = self.cb(self.build_rope(k, inp_pos, swa=swa), "Kcur", il)
        cur = self.build_attn(
            inp, layer.attn_output, QKV(q, k, v), il,
            kq_scale=inv_sqrt(self.hparams.n_embd_head_k), sinks=layer.attn_sinks,
        )  # fmt: skip
        return self.cb(cur, "attn_out", il)
