"""YaRN as published, with unrounded bounds (arXiv:2309.00071; `truncate: false` in transformers).
ggml rounds them to whole pairs of dimensions."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from llama_py.hparams.cparams import CParams
from llama_py.hparams.layer_shape import Rope


@dataclass(frozen=True, slots=True)
class Yarn:
    """Parameters for RoPE without ggml's YaRN.

    base     base of the frequencies
    factors  F32 (n_rot / 2,) divisors of the frequencies of `base`
    scale    factor of rotated heads
    """

    base: float
    factors: NDArray[np.float32]
    scale: float


def yarn(cparams: CParams, how: Rope) -> Yarn:
    """Return the YaRN of a layer's RoPE in a context."""
    base, scale = cparams.rope_freq(how)
    ext_factor, attn_factor = cparams.rope_yarn(how)

    def pair(turns: float) -> float:
        """Return the pair that makes this number of turns within the training positions."""
        wavelength = cparams.n_ctx_orig_yarn / (turns * 2 * math.pi)
        return how.n_rot * math.log(wavelength) / (2 * math.log(base))

    low, high = max(pair(cparams.yarn_beta_fast), 0), pair(cparams.yarn_beta_slow)
    high = min(high, how.n_rot - 1)
    ramp = (np.arange(how.n_rot // 2) - low) / max(high - low, 0.001)
    kept = ext_factor * (1 - np.clip(ramp, 0, 1))  # the share that is extrapolated
    frequencies = scale * (1 - kept) + kept
    return Yarn(
        base, (1 / frequencies).astype(np.float32), attn_factor * (1 - 0.1 * math.log(scale))
    )
