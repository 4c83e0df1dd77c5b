"""DeepSeek-OCR's decoder: no latent attention, experts after the first layers, with shared experts
(models/deepseek2ocr.cpp, and its part of deepseek2.cpp)."""

from __future__ import annotations

from ggml_py.ops import rope_ext
from ggml_py.tensor import Tensor
from llama_py.blocks.attention import QKV, Attention
from llama_py.blocks.experts import ExpertSet
from llama_py.blocks.softmax import Scores
from llama_py.gguf.keys import number
from llama_py.graph.builder import GraphBuilder
from llama_py.hparams import RMS_EPS
from llama_py.hparams.layer_shape import ROPE_NEOX, Rope
from llama_py.memory.specs import KVCacheSpec
from llama_py.models.trunks.decoder import Decoder, Layer
from llama_py.models.trunks.experts import LeadingDenseHParams, expert_layer
from llama_py.models.trunks.latent import yarn_kq_scale
from llama_py.weights import Weights


class OcrHParams(LeadingDenseHParams):
    rope_type = ROPE_NEOX
    required_heads = equal_heads = True
    usual_gating = "softmax"
    f_norm_rms_eps: float = number(RMS_EPS, least=0)

    def rope(self, il: int) -> Rope | None:
        return Rope(
            ROPE_NEOX, self.n_embd_head_k, self.rope_freq_base_train, fixed=True, yarn=False
        )


class DeepseekOcr(Decoder):
    """There may be fewer heads of keys than of queries, and RoPE may have any base; llama.cpp
    refuses both."""

    arch = "deepseek2-ocr"
    HParams = OcrHParams
    hp: OcrHParams
    sizes = {12: "3B"}

    def layer(self, w: Weights, il: int) -> Layer:
        hp = self.hp
        return Layer(
            w.norm("attn_norm", hp.n_embd),
            PlainAttention(w, hp, name="attn_out"),
            w.norm("ffn_norm", hp.n_embd),
            expert_layer(w, hp, il, experts=ExpertSet(merged=True, scaled=False)),
        )


class PlainAttention(Attention):
    """Attention with RoPE without context extension, which only changes the scale of scores."""

    parts_keep = KVCacheSpec

    def scores(self, g: GraphBuilder, il: int) -> Scores:
        return Scores(yarn_kq_scale(g, g.hp.n_embd_head_k))

    def place(self, g: GraphBuilder, qkv: QKV, il: int) -> tuple[Tensor, Tensor]:
        for x, name in zip(qkv, "qkv", strict=True):
            g.cb(x, name, il)
        how = g.hp.layers[il].rope
        assert how is not None
        as_trained = 0, how.freq_base, 1.0, 0.0, 1.0, 0.0, 0.0
        q, k = (rope_ext(x, g.inp_pos, None, how.n_rot, how.type, *as_trained) for x in qkv[:2])
        return g.cb(q, "q_pe", il), g.cb(k, "k_pe", il)
