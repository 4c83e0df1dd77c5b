"""Muse Glimmer: gated attention, norms before and after blocks; three of four layers use
sliding-window attention, the others have no RoPE (models/muse-glimmer.cpp)."""

from __future__ import annotations

from ggml_py.tensor import Tensor
from llama_py.blocks.feed_forward import FeedForward
from llama_py.blocks.gated_heads import GatedHeads
from llama_py.gguf.keys import base, divisor, number, uint
from llama_py.graph.builder import GraphBuilder
from llama_py.graph.linear import Norm
from llama_py.hparams import RMS_EPS, WindowedHParams
from llama_py.hparams.layer_shape import ROPE_NORMAL, Rope
from llama_py.models.trunks.decoder import Decoder, LateSelectLayer
from llama_py.weights import Weights

POST_EPS = 1e-8  # epsilon of the norms after blocks


class MuseGlimmerHParams(WindowedHParams):
    rope_type = ROPE_NORMAL
    required_heads = equal_heads = True
    n_pattern = 4
    f_norm_rms_eps: float = number(RMS_EPS, least=0)
    n_swa: int = uint("attention.sliding_window")
    rope_freq_base_swa: float = base("rope.freq_base_swa", lambda hp: hp.rope_freq_base_train)
    final_logit_softcap: float = divisor("final_logit_softcapping", 0.0)
    logit_scale: float = number("logit_scale")

    def rope(self, il: int) -> Rope | None:
        return super().rope(il) if self.swa_layers[il] else None


class MuseGlimmer(Decoder):
    arch = "muse-glimmer"
    HParams = MuseGlimmerHParams
    sizes = {52: "30B"}

    def embed(self, g: GraphBuilder) -> Tensor:
        return Norm()(g, super().embed(g), "embd_norm")

    def layer(self, w: Weights, il: int) -> LateSelectLayer:
        hp, n_embd = self.hp, self.hp.n_embd
        attn_post, ffn_post = (
            w.norm(stem, n_embd) for stem in ("post_attention_norm", "post_ffw_norm")
        )
        attn_post.eps = ffn_post.eps = POST_EPS
        return LateSelectLayer(
            w.norm("attn_norm", n_embd),
            GatedHeads(w, hp),
            w.norm("ffn_norm", n_embd),
            FeedForward(w, n_embd, hp.layers[il].n_ff, scaled=False),
            attn_post_norm=attn_post,
            ffn_post_norm=ffn_post,
            post_ffn_il=(True, True),
        )
