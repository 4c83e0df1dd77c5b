"""Ling 2: experts after the first layers, with shared experts; queries and keys are normed head by
head (models/bailingmoe2.cpp)."""

from __future__ import annotations

from llama_py.blocks.attention import Attention, Projections, head_norms
from llama_py.gguf.keys import Keys, number, uint
from llama_py.hparams import RMS_EPS
from llama_py.hparams.layer_shape import ROPE_NEOX
from llama_py.models.trunks.decoder import Decoder, Layer
from llama_py.models.trunks.experts import LeadingDenseHParams, expert_layer
from llama_py.weights import Weights


class BailingMoe2HParams(LeadingDenseHParams):
    rope_type = ROPE_NEOX
    required_heads = equal_heads = True
    f_norm_rms_eps: float = number(RMS_EPS, least=0)
    n_ff_shexp: int = uint("expert_shared_feed_forward_length", 0)

    def shared_size(self, keys: Keys) -> int:
        return (self.n_ff_shexp or self.n_ff_exp[0]) * self.n_expert_shared


class BailingMoe2(Decoder):
    """NextN layers are ignored, like in llama.cpp."""

    arch = "bailingmoe2"
    HParams = BailingMoe2HParams
    hp: BailingMoe2HParams
    names = {"ffn_inp": "sa_out"}
    sizes = {20: "16B.A1B", 32: "100B.A6B"}

    def layer(self, w: Weights, il: int) -> Layer:
        hp = self.hp
        qkv = Projections(w, hp.n_embd, hp.layers[il], bias=False, joined=True)
        return Layer(
            w.norm("attn_norm", hp.n_embd),
            Attention(w, hp, qkv=qkv, norms=head_norms(w, hp)),
            w.norm("ffn_norm", hp.n_embd),
            expert_layer(w, hp, il),
        )
