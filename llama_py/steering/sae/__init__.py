"""Sparse autoencoders: features of a model's values, read and changed.

sae = SAE.load("saes/blocks.8.hook_resid_pre")     # SAELens, Gemma Scope, sparsify
with ctx.capture(sae.hook_name) as values:
    ctx.decode(ids, "all")
features = sae.encode(values[sae.hook_name])                  # float32 [n_tokens, d_sae]

with ctx.patch(sae.hook_name, sae.steer({1234: 8.0})):        # or clamp, ablate, splice
    ctx.decode(ids)
"""

from __future__ import annotations

from llama_py.steering.sae.config import SAEConfig
from llama_py.steering.sae.sae import SAE

__all__ = ["SAE", "SAEConfig"]
