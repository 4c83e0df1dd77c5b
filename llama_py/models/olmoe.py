"""OLMoE: queries and keys are normed over all heads, experts in every layer (models/olmoe.cpp)."""

from __future__ import annotations

from llama_py.blocks.experts import UNNORMED, UNSCALED, Experts
from llama_py.blocks.normed_rows import NormedRows
from llama_py.gguf.keys import number
from llama_py.hparams import RMS_EPS
from llama_py.hparams.layer_shape import ROPE_NEOX
from llama_py.models.trunks.decoder import Decoder, Layer
from llama_py.models.trunks.experts import RoutedHParams
from llama_py.weights import Weights


class OlmoeHParams(RoutedHParams):
    rope_type = ROPE_NEOX
    required_heads = equal_heads = whole_rope = True
    f_norm_rms_eps: float = number(RMS_EPS, least=0)


class Olmoe(Decoder):
    """Here there may be fewer heads of keys than of queries; llama.cpp refuses that."""

    arch = "olmoe"
    HParams = OlmoeHParams
    sizes = {16: "A1.7B"}

    def layer(self, w: Weights, il: int) -> Layer:
        hp = self.hp
        return Layer(
            w.norm("attn_norm", hp.n_embd),
            NormedRows(w, hp),
            w.norm("ffn_norm", hp.n_embd),
            Experts(w, hp, hp.layers[il].n_ff, experts=UNSCALED, weighing=UNNORMED),
        )
