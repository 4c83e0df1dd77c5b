"""RoPE over the last dimensions of heads, and its inverse; keys compressed from several tokens use
other frequencies (models/deepseek4.cpp)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ggml_py.ops import rope_ext, rope_ext_back
from ggml_py.tensor import Tensor
from llama_py.hparams.cparams import CParams
from llama_py.hparams.layer_shape import ROPE_NORMAL


@dataclass(frozen=True, slots=True)
class Turn:
    """RoPE parameters for the last n_rot dimensions of each head."""

    n_rot: int
    n_ctx_orig: int
    freq_base: float
    freq_scale: float = 1.0
    ext_factor: float = 0.0
    beta_fast: float = 0.0
    beta_slow: float = 0.0

    def __call__(self, x: Tensor, pos: Tensor, back: bool = False) -> Tensor:
        """Rotate x [d, H, n] by pos I32 [n]; `back`: apply the inverse rotation. -> like x"""
        turn = rope_ext_back if back else rope_ext
        factor = attn_factor(self.freq_scale, self.ext_factor)
        return turn(
            x,
            pos,
            None,
            self.n_rot,
            ROPE_NORMAL,
            self.n_ctx_orig,
            self.freq_base,
            self.freq_scale,
            self.ext_factor,
            factor,
            self.beta_fast,
            self.beta_slow,
            n_offs=x.ne[0] - self.n_rot,
        )


def plain_turn(cp: CParams, n_rot: int) -> Turn:
    """Return RoPE for layers that keep only a window."""
    return Turn(n_rot, 0, cp.rope_freq_base)


def far_turn(cp: CParams, n_rot: int, freq_base: float) -> Turn:
    """Return RoPE for layers with compressed keys."""
    return Turn(
        n_rot,
        cp.n_ctx_orig_yarn,
        freq_base,
        cp.rope_freq_scale,
        cp.yarn_ext_factor,
        cp.yarn_beta_fast,
        cp.yarn_beta_slow,
    )


def attn_factor(freq_scale: float, ext_factor: float) -> float:
    """Return 1 / (1 + 0.1 ln(1 / scale)) in float32, which cancels ggml's YaRN factor."""
    if not ext_factor:
        return 1.0
    f32 = np.float32
    log = np.log(f32(1.0) / f32(freq_scale))
    return float(f32(1.0) / (f32(1.0) + f32(0.1) * log))
