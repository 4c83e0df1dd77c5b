"""Tiny models whose layers several devices share, with enough heads for four."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np

from ggml_py.types import GGMLType
from llama_py.batch import Batch
from llama_py.context import Context
from llama_py.hparams.layer_shape import ROPE_MROPE
from llama_py.model import Model
from llama_py.models.trunks.axes import AxesDecoder
from llama_py.weights.placement import Placement, arrange_devices, devices_in_use
from tests.support.live_models import made, model_of, random, tokens

HEADS: dict[str, Any] = {"attention__head_count": 8, "attention__head_count_kv": 4}
DELTA_NET: dict[str, Any] = {
    "ssm__group_count": 4,
    "ssm__time_step_rank": 8,
    "ssm__inner_size": 256,
}
LATENT: dict[str, Any] = {"attention__head_count": 8}
KIMI: dict[str, Any] = {**LATENT, "kda__head_dim": 16}
KEYS: dict[str, dict[str, Any]] = {
    "llama-dense": HEADS,
    "qwen3moe-moe": HEADS,
    "qwen35-dense": HEADS | DELTA_NET,
    "qwen35moe-moe": HEADS | DELTA_NET,
    "qwen3next-moe": HEADS | DELTA_NET,
    "mamba-dense": {},
    "mamba2-dense": {"ssm__group_count": 4},
    "deepseek2-moe": LATENT,
    "deepseek32-moe": LATENT,
    "kimi-linear-moe": KIMI,
    "kimi-k3-moe": KIMI,
    "lfm2-dense": HEADS | {"attention__head_count_kv": [0, 4, 0]},
    "rwkv6-fused": {},
    "olmo2-dense": HEADS,
}
IDS = tokens(70, seed=3)
EXACT: dict[str, Any] = {
    "n_ctx": 256,
    "n_ubatch": 48,
    "type_k": "f32",
    "type_v": "f32",
    "flash_attn": "off",
}


def shared(
    name: str,
    shares: Sequence[float],
    mode: str = "graph",
    device: str = "cpu",
    types: dict[str, GGMLType] | None = None,
    **options: Any,
) -> Model:
    """A model on as many devices as there are shares."""
    on = placed(shares, mode, device)
    return model_of(*made(name, **KEYS.get(name, {})), on, types, **options)


def placed(shares: Sequence[float], mode: str = "graph", device: str = "cpu") -> Placement:
    devices, order = arrange_devices(devices_in_use([device] * len(shares)), mode, 0, shares)
    return Placement(devices, tensor_split=order, split_mode=mode)


@cache
def cached(name: str, shares: Sequence[float], mode: str = "graph") -> Model:
    """The same, once for all tests."""
    return shared(name, shares, mode)


@cache
def whole(name: str) -> Model:
    """On one device."""
    return model_of(*made(name, **KEYS.get(name, {})), "cpu")


def run(model: Model, **options: Any) -> np.ndarray:
    """Logits of two ubatches, of two tokens after them, and of tokens mixed with embeddings."""
    ctx = Context(model, **{**EXACT, **options})
    parts = [ctx.decode(IDS[:-2], logits="all"), ctx.decode(IDS[-2:-1]), ctx.decode(IDS[-1:])]
    if reads_mixed(model):
        rows = random(2, model.hparams.n_embd_inp)
        parts.append(ctx.decode(Batch([5, -1, -1, 7], rows), logits="all"))
    return np.concatenate(parts)


def reads_mixed(model: Model) -> bool:
    """Whether a batch may have tokens and embeddings: their positions are known."""
    by_axes = isinstance(model.architecture, AxesDecoder)
    known = not by_axes or model.hparams.rope_type == ROPE_MROPE
    return model.hparams.mixes_embd and known


def kinds_of(model: Model) -> set[str]:
    """The classes of the norms and blocks of all layers."""
    layers: list[Any] = model.architecture.layers  # type: ignore[attr-defined]
    found = [getattr(layer, name) for layer in layers for name in type(layer).__slots__]
    return {type(x).__name__ for x in found if callable(x)}
