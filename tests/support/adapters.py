"""Adapters for tiny models: files, and weights with the same change merged into them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import numpy as np

from ggml_py.types import F32, GGMLType
from tests.support.gguf_writer import Tensor, array, gguf, kv, string, u32
from tests.support.live_models import Arrays, info_of

# Weights that no product of a graph reads as they are, or that are not matrices.
NOT_MATRICES = (
    "*norm*",
    "*.bias",
    "*.scale",
    "*conv1d*",
    "*ssm_a*",
    "*ssm_d*",
    "*time_mix_first*",
    "*lerp*",
    "*attn_[kv]_b.*",
    "*ssm_dt.bias",
    "rope_f*",
    "*rel_b*",
    "position_embd*",
    "token_types*",
    "*input_scale",
    "*time_mix_w[12].*",
    "*.time_mix_decay.*",
    "*shortconv.conv*",
)
TABLE = "token_embd.weight"


def matrices(arrays: Arrays) -> list[str]:
    """Those that an adapter may change."""
    return [
        name
        for name, w in arrays.items()
        if w.size > w.shape[-1]
        and not any(fnmatchcase(name, p) for p in NOT_MATRICES)
        and (name != TABLE or "output.weight" in arrays)
    ]


def pairs(arrays: Arrays, names: Sequence[str], rank: int = 4, seed: int = 0) -> Arrays:
    """A and B of each weight, their product about as large as the weight."""
    rng, found = np.random.default_rng(seed), Arrays()
    for name in names:
        w = arrays[name]
        *more, n_out, n_in = w.shape
        size = (float(w.std()) / rank**0.5) ** 0.5
        shapes = (
            ((n_out, rank), (n_in, rank)) if name.endswith(TABLE) else ((rank, n_in), (n_out, rank))
        )
        for end, shape in zip("ab", shapes, strict=True):
            values = rng.standard_normal((*more, *shape)) * size
            found[f"{name}.lora_{end}"] = values.astype(np.float32)
    return found


def merged(arrays: Arrays, changes: Arrays, scale: float) -> Arrays:
    """Weights with the change in them; what a model scales a product with is divided out."""
    result = dict(arrays)
    for name in {key.rpartition(".")[0] for key in changes}:
        a, b = (changes[f"{name}.lora_{end}"].astype(np.float64) for end in "ab")
        delta = scale * (a @ b.swapaxes(-1, -2) if name.endswith(TABLE) else b @ a)
        factor = arrays.get(f"{name.removesuffix('.weight')}.scale")
        if factor is not None:
            delta = delta / factor.reshape(-1, 1, 1)
        result[name] = (arrays[name] + delta.reshape(arrays[name].shape)).astype(np.float32)
    return result


def write_adapter(
    path: Path,
    architecture: str,
    tensors: Arrays,
    *,
    alpha: float | None = 8.0,
    invocation: Sequence[int] | None = None,
    type: GGMLType = F32,
    keys: Mapping[str, Any] | None = None,
) -> Path:
    """The file of an adapter; keys: texts that replace those of the metadata, None for none."""
    texts = {
        "general.type": "adapter",
        "adapter.type": "lora",
        "general.architecture": architecture,
    } | dict(keys or {})
    kvs = [kv(key, "str", text) for key, text in texts.items() if text is not None]
    if alpha is not None:
        kvs.append(kv("adapter.lora.alpha", "f32", alpha))
    if invocation is not None:
        kvs.append(
            string("adapter.alora.invocation_tokens") + u32(9) + array("u32", list(invocation))
        )
    infos = [info_of(name, values, type) for name, values in tensors.items()]
    found = [Tensor(i.name, i.ne, i.type.id, i.data.tobytes(), n_dims=4) for i in infos]
    path.write_bytes(gguf(kvs, found))
    return path
