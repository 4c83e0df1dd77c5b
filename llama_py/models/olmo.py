"""OLMo: norms without weights; queries, keys and values may be clamped (models/olmo.cpp)."""

from __future__ import annotations

from llama_py.blocks.activation import SILU
from llama_py.gguf.keys import number
from llama_py.graph.linear import Norm
from llama_py.hparams.layer_shape import ROPE_NORMAL
from llama_py.models.trunks.layer_norm import LayerNormDecoder, LayerNormHParams
from llama_py.models.trunks.rules import QuantizeRules
from llama_py.weights import Weights


class OlmoHParams(LayerNormHParams):
    rope_type = ROPE_NORMAL
    whole_rope = True
    clamp_kqv: float = number("attention.clamp_kqv", 0.0, least=0)


class Olmo(LayerNormDecoder):
    arch = "olmo"
    HParams = OlmoHParams
    quantize_rules = QuantizeRules(is_70b=lambda n_layer, *_: n_layer == 80)
    sizes = {22: "1B", 32: "7B", 80: "70B"}
    layer_sum = "ffn_out"
    act, gated = SILU, True

    def norm(self, w: Weights, stem: str) -> Norm:
        return Norm(kind="layer")
