"""LLaDA with experts, and norms of queries and keys (models/llada-moe.cpp)."""

from __future__ import annotations

from typing import ClassVar

from llama_py.blocks.attention import Attention, head_norms
from llama_py.blocks.experts import UNSCALED, Experts, Routing, Weighing
from llama_py.gguf.keys import number
from llama_py.hparams import RMS_EPS
from llama_py.hparams.layer_shape import ROPE_NEOX
from llama_py.models.trunks.decoder import Decoder, Layer
from llama_py.models.trunks.experts import ExpertHParams
from llama_py.models.trunks.rules import Diffusion
from llama_py.weights import Weights


class LladaMoeHParams(ExpertHParams):
    rope_type = ROPE_NEOX
    required_heads = equal_heads = whole_rope = True
    causal_attn = cached = False
    f_norm_rms_eps: float = number(RMS_EPS, least=0)


class LladaMoe(Decoder):
    """norm_w  normalize the weights of the chosen experts to sum to one"""

    arch = "llada-moe"
    HParams = LladaMoeHParams
    hp: LladaMoeHParams
    diffusion = Diffusion()
    sizes = {16: "A1.7B"}
    norm_w: ClassVar[bool] = False

    def layer(self, w: Weights, il: int) -> Layer:
        hp = self.hp
        return Layer(
            w.norm("attn_norm", hp.n_embd),
            Attention(w, hp, norms=head_norms(w, hp)),
            w.norm("ffn_norm", hp.n_embd),
            Experts(
                w,
                hp,
                hp.n_ff_exp[il],
                experts=UNSCALED,
                routing=Routing(router_scaled=False),
                weighing=Weighing(normed=self.norm_w),
            ),
        )
