"""GPT-NeoX and Pythia: norms and matrices with biases; attention and feed-forward may be parallel,
with separate norms (models/gptneox.cpp)."""

from __future__ import annotations

from llama_py.gguf.keys import flag
from llama_py.hparams.layer_shape import ROPE_NEOX
from llama_py.models.trunks.architecture import AnyHParams
from llama_py.models.trunks.decoder import AnyLayer, Layer, ParallelLayer
from llama_py.models.trunks.layer_norm import LayerNormDecoder, LayerNormHParams
from llama_py.weights import Weights

# key: layers and hidden size
_SIZES = {
    (6, 512): "14M", (6, 2048): "70M", (12, 3072): "160M", (16, 8192): "1B", (24, 4096): "410M",
    (24, 8192): "1.4B", (32, 10240): "2.8B", (32, 16384): "6.9B", (36, 20480): "12B",
    (44, 24576): "20B",
}  # fmt: skip


class GptNeoXHParams(LayerNormHParams):
    rope_type = ROPE_NEOX
    use_par_res: bool = flag("use_parallel_residual")


class GptNeoX(LayerNormDecoder):
    arch = "gptneox"
    HParams = GptNeoXHParams
    hp: GptNeoXHParams
    qkv_bias = out_bias = ffn_bias = "needed"

    @classmethod
    def size_name(cls, hp: AnyHParams) -> str:
        return _SIZES.get((hp.n_layer, hp.n_ff[0]), "?B")

    def layer(self, w: Weights, il: int) -> AnyLayer:
        norm, attention = self.norm(w, "attn_norm"), self.attention(w)
        ffn_norm, feed_forward = self.norm(w, "ffn_norm"), self.feed_forward(w)
        if not self.hp.use_par_res:
            return Layer(norm, attention, ffn_norm, feed_forward)
        return ParallelLayer(norm, attention, feed_forward, ffn_norm=ffn_norm, sum_name="ffn_out")
