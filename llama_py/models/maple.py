"""Maple: most layers use sliding-window attention, the others have no RoPE; experts with clamped
hidden values (models/maple.cpp)."""

from __future__ import annotations

from llama_py.blocks.activation import clamped_silu
from llama_py.blocks.attention import Attention, head_norms
from llama_py.blocks.experts import UNSCALED, Experts
from llama_py.gguf.keys import base, number, numbers, uint
from llama_py.hparams import RMS_EPS
from llama_py.hparams.layer_shape import ROPE_NEOX, Rope
from llama_py.models.trunks.decoder import Decoder, Layer
from llama_py.models.trunks.experts import ExpertHParams
from llama_py.models.trunks.scaled_windows import ScaledWindows
from llama_py.weights import Weights


class MapleHParams(ExpertHParams, ScaledWindows):
    """swiglu_clamp_exp  limits of experts' gates and values, by layer; 0: no limit"""

    rope_type = ROPE_NEOX
    required_heads = equal_heads = True
    n_pattern = 4
    f_norm_rms_eps: float = number(RMS_EPS, least=0)
    n_swa: int = uint("attention.sliding_window", least=1)
    rope_freq_base_swa: float = base("rope.freq_base_swa", lambda hp: hp.rope_freq_base_train)
    swiglu_clamp_exp: tuple[float, ...] = numbers("swiglu_clamp_exp")

    def rope(self, il: int) -> Rope | None:
        return super().rope(il) if self.swa_layers[il] else None


class Maple(Decoder):
    arch = "maple"
    HParams = MapleHParams
    hp: MapleHParams
    sizes = {24: "20B"}

    def layer(self, w: Weights, il: int) -> Layer:
        hp = self.hp
        act = clamped_silu(hp.swiglu_clamp_exp[il])
        return Layer(
            w.norm("attn_norm", hp.n_embd),
            Attention(w, hp, norms=head_norms(w, hp), name="attn_out"),
            w.norm("ffn_norm", hp.n_embd),
            Experts(w, hp, hp.n_ff_exp[il], experts=UNSCALED, act=act),
        )
