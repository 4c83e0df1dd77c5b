"""Hunyuan with mixture of experts, plus a shared expert (models/hunyuan-moe.cpp)."""

from __future__ import annotations

from llama_py.blocks.experts import UNSCALED, Experts, SharedExperts
from llama_py.gguf.keys import Keys, number, uint, uints
from llama_py.hparams import RMS_EPS
from llama_py.hparams.layer_shape import ROPE_NEOX
from llama_py.models.trunks.decoder import Decoder, Layer
from llama_py.models.trunks.experts import RoutedHParams
from llama_py.models.trunks.hunyuan import NAMES, late_normed
from llama_py.weights import Weights


class HunyuanMoeHParams(RoutedHParams):
    """The size of experts is feed_forward_length; the other key must exist."""

    rope_type = ROPE_NEOX
    required_heads = equal_heads = whole_rope = True
    f_norm_rms_eps: float = number(RMS_EPS, least=0)
    expert_sizes: tuple[int, ...] = uints("expert_feed_forward_length")
    n_ff_shexp: int = uint("expert_shared_feed_forward_length", 0)

    def load(self, keys: Keys) -> None:
        super().load(keys)
        self.n_ff_shexp = self.n_ff_shexp or self.n_ff[0]


class HunyuanMoe(Decoder):
    arch = "hunyuan-moe"
    HParams = HunyuanMoeHParams
    names = {**NAMES, "ffn_shexp": "ffn_mlp"}
    sizes = {32: "A13B"}

    def layer(self, w: Weights, il: int) -> Layer:
        hp = self.hp
        experts = Experts(w, hp, hp.layers[il].n_ff, experts=UNSCALED)
        return Layer(
            w.norm("attn_norm", hp.n_embd),
            late_normed(w, hp, ("Qcur", "")),
            w.norm("ffn_norm", hp.n_embd),
            SharedExperts(w, hp, experts, hp.n_ff_shexp, scaled=False),
        )
