"""Activations of sparse autoencoders, one function per architecture (SAELens: saes/*_sae.py).

All get the prepared rows x [n, d_in], the weights by SAELens's names and the configuration, and
return features [n, d_sae], mostly zeros.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import numpy.typing as npt

from llama_py.steering.sae.config import SAEConfig

F32 = npt.NDArray[np.float32]
Weights = Mapping[str, F32]


def standard(x: F32, w: Weights, cfg: SAEConfig) -> F32:
    found: F32 = np.maximum(x @ w["W_enc"] + w["b_enc"], 0)
    return found


def topk(x: F32, w: Weights, cfg: SAEConfig) -> F32:
    """Return the k largest features, if they are positive."""
    before = x @ w["W_enc"] + w["b_enc"]
    if cfg.rescale_acts_by_decoder_norm:
        before = before * decoder_norm(w)
    kept = np.argpartition(before, -cfg.k, axis=-1)[..., -cfg.k :]
    found = np.zeros_like(before)
    np.put_along_axis(found, kept, np.maximum(np.take_along_axis(before, kept, -1), 0), -1)
    return found


def jumprelu(x: F32, w: Weights, cfg: SAEConfig) -> F32:
    """Keep activations above their threshold."""
    before = x @ w["W_enc"] + w["b_enc"]
    found: F32 = np.maximum(before, 0) * (before > w["threshold"])
    return found


def gated_relu(x: F32, w: Weights, cfg: SAEConfig) -> F32:
    """Return gated features: one product selects them, the other, scaled, is their size."""
    shared = x @ w["W_enc"]
    found: F32 = np.maximum(shared * np.exp(w["r_mag"]) + w["b_mag"], 0)
    return found * (shared + w["b_gate"] > 0)


def decoder_norm(w: Weights) -> F32:
    found: F32 = np.linalg.norm(w["W_dec"], axis=1)
    return found


Encode = Callable[[F32, Weights, SAEConfig], F32]
# Each with the weights that it needs in addition to W_enc, W_dec and b_dec.
ARCHITECTURES: dict[str, tuple[Encode, tuple[str, ...]]] = {
    "standard": (standard, ("b_enc",)),
    "topk": (topk, ("b_enc",)),
    "jumprelu": (jumprelu, ("b_enc", "threshold")),
    "gated": (gated_relu, ("b_gate", "r_mag", "b_mag")),
}
