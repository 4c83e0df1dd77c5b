"""Qwen2 and 2.5, dense: like Llama with biases on queries, keys and values (models/qwen2.cpp)."""

from __future__ import annotations

from llama_py.blocks.attention import Attention
from llama_py.blocks.feed_forward import FeedForward
from llama_py.gguf.keys import number
from llama_py.hparams import RMS_EPS, HParams
from llama_py.hparams.layer_shape import ROPE_NEOX
from llama_py.models.trunks.architecture import AnyHParams
from llama_py.models.trunks.decoder import Decoder, Layer
from llama_py.models.trunks.rules import QuantizeRules
from llama_py.weights import Weights


class Qwen2HParams(HParams):
    rope_type = ROPE_NEOX
    required_heads = equal_heads = True
    f_norm_rms_eps: float = number(RMS_EPS, least=0)


class Qwen2(Decoder):
    arch = "qwen2"
    HParams = Qwen2HParams
    quantize_rules = QuantizeRules(is_70b=lambda n_layer, *_: n_layer == 80)
    sizes = {
        (24, 1024): "0.5B",
        24: "1B",
        (28, 1536): "1.5B",
        28: "7B",
        32: "7B",
        36: "3B",
        48: "14B",
        64: "32B",
        80: "70B",
    }
    output_bias = True

    @classmethod
    def size_name(cls, hp: AnyHParams) -> str:
        if hp.n_layer == 40:
            return "4B" if hp.n_head[0] == 20 else "13B"
        return super().size_name(hp)

    def layer(self, w: Weights, il: int) -> Layer:
        hp = self.hp
        return Layer(
            w.norm("attn_norm", hp.n_embd),
            Attention(w, hp),
            w.norm("ffn_norm", hp.n_embd),
            FeedForward(w, hp.n_embd, hp.layers[il].n_ff, scaled=False),
        )
