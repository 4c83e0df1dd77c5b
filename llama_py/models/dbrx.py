"""DBRX: experts in every layer; queries, keys and values by one matrix and clamped
(models/dbrx.cpp)."""

from __future__ import annotations

from llama_py.blocks.attention import Attention, Projections
from llama_py.blocks.experts import UNSCALED, Experts
from llama_py.gguf.keys import number
from llama_py.hparams.layer_shape import ROPE_NEOX
from llama_py.models.trunks.decoder import Layer
from llama_py.models.trunks.experts import RoutedHParams
from llama_py.models.trunks.layer_norm import LayerNormDecoder, LayerNormHParams
from llama_py.weights import Weights


class DbrxHParams(LayerNormHParams, RoutedHParams):
    rope_type = ROPE_NEOX
    whole_rope = True
    clamp_kqv: float = number("attention.clamp_kqv", least=0)


class Dbrx(LayerNormDecoder):
    arch = "dbrx"
    HParams = DbrxHParams
    sizes = {40: "16x12B"}
    names = {"ffn_norm": "attn_out_norm"}
    layer_sum = "ffn_out"
    norm_bias = False

    def layer(self, w: Weights, il: int) -> Layer:
        hp = self.hp
        qkv = Projections(w, hp.n_embd, hp.layers[il], bias=False, joined=True)
        return Layer(
            self.norm(w, "attn_norm"),
            Attention(w, hp, qkv=qkv),
            self.norm(w, "attn_output_norm"),
            Experts(w, hp, hp.layers[il].n_ff, experts=UNSCALED),
        )
