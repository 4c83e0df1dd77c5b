"""Common parts of Gemma 2 and Gemma 3: the scale of queries, which differs in the largest model."""

from __future__ import annotations

from typing import ClassVar

from llama_py.blocks.activation import GELU
from llama_py.blocks.attention import Attention
from llama_py.blocks.feed_forward import FeedForward
from llama_py.blocks.functions import inv_sqrt
from llama_py.gguf.keys import Keys, number
from llama_py.hparams import RMS_EPS, WindowedHParams
from llama_py.hparams.layer_shape import ROPE_NEOX
from llama_py.models.trunks.decoder import Decoder, Layer
from llama_py.weights import Weights


class PostNormHParams(WindowedHParams):
    """n_layer_27b: layers of the largest model"""

    rope_type = ROPE_NEOX
    required_heads = equal_heads = True
    n_layer_27b: ClassVar[int]
    f_norm_rms_eps: float = number(RMS_EPS, least=0)

    def load(self, keys: Keys) -> None:
        super().load(keys)
        if self.n_layer == self.n_layer_27b:
            self.attention_scale = inv_sqrt(self.n_embd // self.n_head_first)


class GemmaDecoder(Decoder):
    """Results of attention and of the feed-forward are normed as well.

    post_ffn_il  like `Layer`
    """

    post_ffn_il: ClassVar[tuple[bool, bool]] = (False, True)
    names = {"ffn_inp": "sa_out", "Qcur_scaled": ""}

    def layer_around(self, w: Weights, il: int, attention: Attention) -> Layer:
        """Declare layer il around `attention`."""
        n_embd = self.hp.n_embd
        return Layer(
            w.norm("attn_norm", n_embd),
            attention,
            w.norm("ffn_norm", n_embd),
            FeedForward(w, n_embd, self.hp.layers[il].n_ff, act=GELU, scaled=False),
            attn_post_norm=w.norm("post_attention_norm", n_embd),
            ffn_post_norm=w.norm("post_ffw_norm", n_embd),
            post_ffn_il=self.post_ffn_il,
        )
