"""RoPE of checkpoints: the order of rows, and factors of frequencies."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from ggml_py.errors import ModelError
from llama_py.checkpoint.arrays import LazyArray, NamedArrays
from llama_py.checkpoint.shared_keys import ORIGINAL, YARN
from llama_py.checkpoint.stored import StoredModel


def permute(array: LazyArray, n_head: int) -> LazyArray:
    """Reorder the rows of each head: alternately from its first and its second half.

    llama.cpp rotates neighboring rows, transformers the halves of a head.
    """
    n, *rest = array.shape
    if n_head <= 0:
        raise ModelError(f"the number of heads must be positive, got {n_head}")
    return array.reshape(n_head, 2, n // n_head // 2, *rest).swap(1, 2).reshape(n, *rest)


def unpermute(array: LazyArray, n_head: int) -> LazyArray:
    """Return the rows in the order before `permute`."""
    n, *rest = array.shape
    return array.reshape(n_head, n // n_head // 2, 2, *rest).swap(1, 2).reshape(n, *rest)


def rope_factors(rope: Mapping[str, Any], n_rot: int, factor: float = 8.0) -> NamedArrays:
    """Yield the factors of frequencies of Llama 3.1 if the RoPE has this type."""
    if str(rope.get("rope_type")).lower() == "llama3":
        yield "rope_freqs.weight", LazyArray.from_values(llama3_factors(rope, n_rot, factor))


def llama3_factors(
    rope: Mapping[str, Any], n_rot: int, factor: float = 8.0, kind: type = np.float32
) -> npt.NDArray[Any]:
    """Return the factors of frequencies of Llama 3.1, [n_rot / 2].

    factor   without another in the parameters
    kind     type of the results
    """
    base = np.float32(rope.get("rope_theta", 10000.0))
    freqs = 1 / base ** (np.arange(0, n_rot, 2, dtype=np.float32) / np.float32(n_rot))
    factor, context = rope.get("factor", factor), rope.get(ORIGINAL, 8192)
    low, high = rope.get("low_freq_factor", 1.0), rope.get("high_freq_factor", 4.0)
    wavelength = kind(2 * math.pi) / freqs.astype(kind)
    smooth = (kind(context) / wavelength - kind(low)) / kind(high - low)
    between = 1 / ((1 - smooth) / kind(factor) + smooth)
    long = np.where(wavelength > context / low, kind(factor), between)
    found: npt.NDArray[Any] = np.where(wavelength < context / high, kind(1), long)
    return found


def restore_llama3(factors: npt.NDArray[np.float32], theta: float) -> dict[str, Any]:
    """Return the parameters with these factors of frequencies, the inverse of `llama3_factors`.

    Raises ModelError if the factors are not of this type.
    """
    rope: dict[str, Any] = {"rope_type": "llama3", "rope_theta": theta}
    rope |= {"factor": float(factors.max()), "low_freq_factor": 1.0, "high_freq_factor": 4.0}
    for context in (8192, *(2**n for n in range(4, 21))):
        rope[ORIGINAL] = context
        if np.allclose(llama3_factors(rope, 2 * len(factors)), factors, rtol=1e-5, atol=0):
            return rope
    raise ModelError("rope_freqs.weight cannot be exported: the RoPE is not of the type llama3")


def long_factors(rope: Mapping[str, Any], n_rot: int) -> NamedArrays:
    """Yield the factors of LongRoPE for long and short contexts, [n_rot / 2], if it has any."""
    long, short = rope.get("long_factor"), rope.get("short_factor")
    if not long and not short:
        return
    for name, factors in (("long", long), ("short", short)):
        if not isinstance(factors, list) or len(factors) * 2 != n_rot:
            raise ModelError(
                f"rope_scaling: {name}_factor must be a list of {n_rot // 2} numbers, got "
                f"{str(factors)[:50]}"
            )
        yield f"rope_factors_{name}.weight", LazyArray.from_values(factors)


def restore_rope(model: StoredModel) -> dict[str, Any]:
    """Return the inverse of the keys of RoPE: rope_theta and rope_parameters."""
    kind, theta = model.get("rope.scaling.type"), model.get("rope.freq_base", 10000.0)
    rope: dict[str, Any] = {"rope_type": "default", "rope_theta": theta}
    if kind not in (None, "none", "linear", "yarn"):
        raise ModelError(
            f"RoPE of the type {kind!r} cannot be exported; only none, linear and yarn can"
        )
    if kind in ("linear", "yarn"):
        rope |= {"rope_type": kind, "factor": model.get("rope.scaling.factor", 1.0)}
    if kind == "yarn":
        rope[ORIGINAL] = model.get("rope.scaling.original_context_length")
        for key, names in YARN:
            if (value := model.get(f"rope.scaling.{key}")) is not None:
                rope[names[0]] = value
    if (factors := model.values("rope_freqs.weight")) is not None:
        rope |= restore_llama3(factors, theta)
    if (sections := model.get("rope.dimension_sections")) is not None:
        rope["mrope_section"] = sections[:3]
    if (local := model.get("rope.freq_base_swa")) is None:
        return {"rope_theta": theta, "rope_parameters": rope}
    windowed = {"rope_type": "default", "rope_theta": local}
    return {"rope_parameters": {"full_attention": rope, "sliding_attention": windowed}}
