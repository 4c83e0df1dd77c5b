"""Configuration of a sparse autoencoder (SAELens: cfg.json)."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from ggml_py.errors import ModelError

log = logging.getLogger("llama_py")

NORMALIZATIONS = ("none", "layer_norm", "constant_norm_rescale")
OLD_NAMES = {"hook_point": "hook_name", "activation_fn_str": "activation_fn"}


@dataclass(frozen=True, kw_only=True)
class SAEConfig:
    """Fields of SAELens's configuration that define the computation.

    architecture   standard, topk, jumprelu or gated (llama_py.steering.sae.activations)
    k              number of nonzero features per row (topk)
    apply_b_dec_to_input   subtract the decoder's bias from the input first
    normalize_activations  normalization of rows: "none", "layer_norm", or
                           "constant_norm_rescale" to the length sqrt(d_in)
    rescale_acts_by_decoder_norm   scale features as if the decoder's rows had length 1 (topk)
    hook_name      name of the hook that provides the rows
    """

    d_in: int
    d_sae: int
    architecture: str = "standard"
    k: int = 0
    apply_b_dec_to_input: bool = True
    normalize_activations: str = "none"
    rescale_acts_by_decoder_norm: bool = False
    hook_name: str = ""

    def __post_init__(self) -> None:
        if self.normalize_activations not in NORMALIZATIONS:
            raise ModelError(
                f"normalize_activations must be {' or '.join(NORMALIZATIONS)}, got "
                f"{self.normalize_activations!r}"
            )
        if self.architecture == "topk" and not 0 < self.k <= self.d_sae:
            raise ModelError(f"k of a topk SAE must be from 1 to {self.d_sae}, got {self.k}")


def parse_config(found: Mapping[str, Any], d_in: int, d_sae: int) -> SAEConfig:
    """Return the configuration of a SAELens cfg.json, before or since version 6.

    d_in, d_sae  sizes of the weights

    Raises ModelError for unsupported configurations.
    """
    cfg = {OLD_NAMES.get(key, key): value for key, value in found.items()}
    cfg |= {k: v for k, v in (cfg.get("metadata") or {}).items() if k not in cfg}
    if cfg.get("hook_head_index") is not None:
        raise ModelError(
            f"SAEs of a single head are not supported, got hook_head_index {cfg['hook_head_index']}"
        )
    activation = cfg.get("activation_fn", "relu")
    if activation == "topk":
        cfg["architecture"] = "topk"
        cfg.setdefault("k", (cfg.get("activation_fn_kwargs") or {}).get("k", 0))
    elif activation not in ("relu", None):
        raise ModelError(f"activation_fn must be relu or topk, got {activation!r}")
    if cfg.get("normalize_activations") in (True, "expected_average_only_in"):
        log.warning(
            "the SAE was trained on scaled rows; its weights are expected to include that scale"
        )
    if cfg.get("normalize_activations") in (None, False, True, "expected_average_only_in"):
        cfg["normalize_activations"] = "none"
    known = {f.name for f in fields(SAEConfig)} - {"d_in", "d_sae"}
    chosen = {k: v for k, v in cfg.items() if k in known and v is not None}
    return SAEConfig(d_in=d_in, d_sae=d_sae, **chosen)
