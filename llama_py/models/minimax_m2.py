"""MiniMax M2: queries and keys are normed over all heads, experts in every layer
(models/minimax-m2.cpp)."""

from __future__ import annotations

from llama_py.blocks.experts import GATING_FUNCS, UNSCALED, Experts, Routing
from llama_py.blocks.normed_rows import NormedRows
from llama_py.gguf.keys import number, uint, uints
from llama_py.hparams import RMS_EPS
from llama_py.hparams.layer_shape import ROPE_NEOX
from llama_py.models.trunks.decoder import Decoder, Layer
from llama_py.models.trunks.experts import RoutedHParams
from llama_py.weights import Weights


class MiniMaxM2HParams(RoutedHParams):
    """The size of experts is feed_forward_length; the other key must exist."""

    rope_type = ROPE_NEOX
    required_heads = equal_heads = True
    f_norm_rms_eps: float = number(RMS_EPS, least=0)
    expert_sizes: tuple[int, ...] = uints("expert_feed_forward_length")
    expert_gating_func: int = uint("expert_gating_func", 0, least=1, most=len(GATING_FUNCS))


class MiniMaxM2(Decoder):
    arch = "minimax-m2"
    HParams = MiniMaxM2HParams
    hp: MiniMaxM2HParams
    sizes = {62: "230B.A10B"}

    def layer(self, w: Weights, il: int) -> Layer:
        hp = self.hp
        gating = GATING_FUNCS[hp.expert_gating_func - 1]
        return Layer(
            w.norm("attn_norm", hp.n_embd),
            NormedRows(w, hp),
            w.norm("ffn_norm", hp.n_embd),
            Experts(
                w,
                hp,
                hp.layers[il].n_ff,
                experts=UNSCALED,
                routing=Routing(gating=gating, bias="needed"),
            ),
        )
