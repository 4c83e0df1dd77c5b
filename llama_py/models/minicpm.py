"""MiniCPM 1 and 2: scales like Granite's (models/minicpm.cpp).

If an old file lacks the divisor of logits, it is n_embd / 256, as in training; llama.cpp uses the
inverse.
"""

from __future__ import annotations

import numpy as np

from llama_py.gguf.keys import divisor, number
from llama_py.hparams import HParams
from llama_py.models.granite import ScaledDecoder, ScaledHParams


def _residual(hp: HParams) -> float:
    return float(np.float32(1.4) / np.sqrt(np.float32(max(hp.n_layer, 1))))


class MiniCpmHParams(ScaledHParams):
    attention_scale = 0.0
    n_ff_shexp = 0
    logits_divisor: float = divisor("logit_scale", lambda hp: hp.n_embd / 256)
    residual_scale: float = number("residual_scale", _residual)
    embedding_scale: float = number("embedding_scale", 12.0)


class MiniCpm(ScaledDecoder):
    arch = "minicpm"
    HParams = MiniCpmHParams
    sizes = {40: "2B", 52: "1B"}
