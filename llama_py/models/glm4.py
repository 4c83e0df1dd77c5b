"""GLM-4, text and vision: blocks are normed before and after; gate and up are one matrix
(models/glm4.cpp)."""

from __future__ import annotations

from llama_py.blocks.activation import SWIGLU
from llama_py.blocks.attention import Attention
from llama_py.blocks.feed_forward import FeedForward
from llama_py.gguf.keys import number
from llama_py.hparams import RMS_EPS
from llama_py.hparams.layer_shape import ROPE_NORMAL
from llama_py.models.trunks.axes import AxesDecoder, AxesHParams
from llama_py.models.trunks.decoder import Layer
from llama_py.weights import Weights


class Glm4HParams(AxesHParams):
    rope_type = ROPE_NORMAL
    required_heads = equal_heads = True
    f_norm_rms_eps: float = number(RMS_EPS, least=0)


class Glm4(AxesDecoder):
    """NextN layers are ignored, like in llama.cpp."""

    arch = "glm4"
    HParams = Glm4HParams
    sizes = {17: "1B", 40: "9B", 61: "32B"}
    hp: Glm4HParams
    names = {"attn_post_norm": "post_attn_norm", "ffn_post_norm": "post_mlp_norm"}

    def layer(self, w: Weights, il: int) -> Layer:
        hp, n_embd = self.hp, self.hp.n_embd
        attention = Attention(w, hp)
        feed_forward = FeedForward(w, n_embd, hp.layers[il].n_ff, act=SWIGLU, scaled=False)
        attention.output.prec = feed_forward.down.prec = "f32"
        return Layer(
            w.norm("attn_norm", n_embd),
            attention,
            w.norm("ffn_norm", n_embd),
            feed_forward,
            attn_post_norm=w.norm("post_attention_norm", n_embd),
            ffn_post_norm=w.norm("post_ffw_norm", n_embd),
            post_ffn_il=(True, True),
        )
