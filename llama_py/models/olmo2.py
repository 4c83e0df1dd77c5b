"""OLMo 2 and 3: only results of blocks are normed, and queries and keys over all heads; most layers
may use sliding-window attention (models/olmo2.cpp)."""

from __future__ import annotations

from llama_py.blocks.feed_forward import FeedForward
from llama_py.blocks.normed_rows import NormedRows
from llama_py.gguf.keys import number
from llama_py.hparams import RMS_EPS
from llama_py.hparams.layer_shape import ROPE_NEOX
from llama_py.models.trunks.decoder import Decoder, Layer
from llama_py.models.trunks.unscaled_windows import UnscaledWindows
from llama_py.weights import Weights


class Olmo2HParams(UnscaledWindows):
    rope_type = ROPE_NEOX
    required_heads = equal_heads = whole_rope = True
    f_norm_rms_eps: float = number(RMS_EPS, least=0)


class Olmo2(Decoder):
    arch = "olmo2"
    HParams = Olmo2HParams
    sizes = {16: "1B", 32: "7B", 40: "13B", 64: "32B"}
    hp: Olmo2HParams
    layer_sum = "ffn_out"

    def layer(self, w: Weights, il: int) -> Layer:
        hp, shape = self.hp, self.hp.layers[il]
        return Layer(
            None,
            NormedRows(w, hp),
            None,
            FeedForward(w, hp.n_embd, shape.n_ff, scaled=False),
            attn_post_norm=w.norm("post_attention_norm", hp.n_embd),
            ffn_post_norm=w.norm("post_ffw_norm", hp.n_embd),
            post_ffn_il=(False, False),
        )
