"""Hunyuan, text and vision: queries and keys are normed after RoPE (models/hunyuan-vl.cpp)."""

from __future__ import annotations

import numpy as np

from llama_py.blocks.feed_forward import FeedForward
from llama_py.gguf.keys import HIGHEST_BASE, LOWEST_BASE, Keys, number
from llama_py.hparams import RMS_EPS
from llama_py.hparams.layer_shape import ROPE_NEOX
from llama_py.models.trunks.architecture import AnyHParams
from llama_py.models.trunks.axes import AxesHParams
from llama_py.models.trunks.decoder import Decoder, Layer
from llama_py.models.trunks.hunyuan import NAMES, late_normed
from llama_py.weights import Weights


class HunyuanHParams(AxesHParams):
    """rope_scaling_alpha  increases the base of RoPE's frequencies

    A file with one expert is dense."""

    rope_type = ROPE_NEOX
    required_heads = equal_heads = whole_rope = True
    f_norm_rms_eps: float = number(RMS_EPS, least=0)
    rope_scaling_alpha: float = number("rope.scaling.alpha", 0.0)

    def _check_experts(self, keys: Keys) -> None:
        if self.n_expert <= 1:
            self.n_expert, self.n_expert_used = 0, (0,) * self.n_layer_all
        super()._check_experts(keys)

    def load(self, keys: Keys) -> None:
        super().load(keys)
        if self.rope_scaling_alpha > 0:
            self.rope_freq_base_train = self._scaled_base(keys)

    def _scaled_base(self, keys: Keys) -> float:
        """base * alpha^(d / (d - 2)) in float32 steps."""
        f32, d = np.float32, self.n_embd_head_k
        if d <= 2:
            raise keys.error("rope.scaling.alpha", "needs a head size of more than 2")
        with np.errstate(over="ignore", under="ignore"):
            grown = f32(self.rope_scaling_alpha) ** (f32(d) / f32(d - 2))
            base = float(f32(self.rope_freq_base_train) * grown)
        if not LOWEST_BASE <= base <= HIGHEST_BASE:
            raise keys.error(
                "rope.scaling.alpha",
                f"must give a RoPE base from {LOWEST_BASE} to {HIGHEST_BASE}, not {base:g}",
            )
        return base


class HunyuanVL(Decoder):
    arch = "hunyuan_vl"
    HParams = HunyuanHParams
    names = NAMES

    @classmethod
    def size_name(cls, hp: AnyHParams) -> str:
        return {1024: "0.5B", 2048: "1.8B", 3072: "4B", 4096: "7B"}.get(hp.n_embd, "?B")

    def layer(self, w: Weights, il: int) -> Layer:
        hp = self.hp
        return Layer(
            w.norm("attn_norm", hp.n_embd),
            late_normed(w, hp),
            w.norm("ffn_norm", hp.n_embd),
            FeedForward(w, hp.n_embd, hp.layers[il].n_ff, scaled=False),
        )
