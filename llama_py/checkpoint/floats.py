"""Bits of checkpoint types as floats, and floats as bytes of GGUF types."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from ggml_py.errors import ModelError
from ggml_py.types import BF16, F16, F32, I64, GGMLType

Array = npt.NDArray[Any]
Bytes = npt.NDArray[np.uint8]
N_Q8 = 32  # values of a block of Q8_0


def from_bits(dtype: str, bits: Array) -> Array:
    """Return stored elements as float32; F16 as float16.

    dtype   name in a safetensors file
    bits    elements; of BF16 and FP8, unsigned integers
    """
    if dtype == "BF16":
        return (bits.astype(np.uint32) << 16).view(np.float32)
    if dtype in ("F8_E4M3", "F8_E5M2", "F8_E8M0"):
        values: Array = _byte_values(dtype)[bits]
        return values
    return bits if dtype in ("F16", "F32") else bits.astype(np.float32)


@cache
def _byte_values(dtype: str) -> npt.NDArray[np.float32]:
    """Return the value of each byte; E4M3 as in the OCP standard, without infinities."""
    byte = np.arange(256)
    if dtype == "F8_E5M2":
        return (byte.astype(np.uint16) << 8).view(np.float16).astype(np.float32)
    if dtype == "F8_E8M0":
        scales = np.ldexp(np.float64(1), byte - 127)
        scales[255] = np.nan
        return scales.astype(np.float32)
    exponent, mantissa = byte >> 3 & 15, byte & 7
    normal = np.ldexp(1 + mantissa / 8, exponent - 7)
    size = np.where(exponent == 0, np.ldexp(mantissa / 8, -6), normal)
    size[(byte & 127) == 127] = np.nan
    found: npt.NDArray[np.float32] = np.where(byte & 128, -size, size).astype(np.float32)
    return found


def n_bytes(type: GGMLType, shape: tuple[int, ...]) -> int:
    """Return the bytes of a tensor; the last dimension consists of whole blocks."""
    n_rows = int(np.prod(shape[:-1]))
    return n_rows * type.row_size(shape[-1]) if shape else type.type_size


def to_bytes(type: GGMLType, values: Array) -> Bytes:
    """Return the bytes of an array as F32, I64, F16, BF16 or Q8_0, rounded like gguf-py's quants.

    Raises ModelError for another type.
    """
    if type == F32:
        return _flat(values.astype(np.float32, copy=False))
    if type == I64:
        return _flat(values.astype(np.int64, copy=False))
    if type == F16:
        with np.errstate(over="ignore"):
            return _flat(values.astype(np.float16, copy=False))
    floats = np.ascontiguousarray(values, np.float32)
    if type == BF16:
        return _flat(_bf16(floats.view(np.uint32)))
    if type.name == "q8_0":
        return _flat(_q8_0(floats.reshape(-1, N_Q8)))
    raise ModelError(f"a checkpoint cannot be converted to {type}; convert to F16 and quantize")


def _flat(values: Array) -> Bytes:
    return np.ascontiguousarray(values).reshape(-1).view(np.uint8)


def _bf16(bits: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint16]:
    """Round to nearest, ties to even; NaNs become quiet."""
    is_nan = (bits & 0x7FFFFFFF) > 0x7F800000
    rounded = (bits + np.uint32(0x7FFF) + (bits >> 16 & np.uint32(1))) >> 16  # wraps for NaN only
    return np.where(is_nan, bits >> 16 | 64, rounded).astype(np.uint16)


def _q8_0(blocks: npt.NDArray[np.float32]) -> Bytes:
    """Return blocks of [scale as float16, 32 bytes]; halves are rounded away from zero."""
    scale = np.abs(blocks).max(axis=1, keepdims=True) / 127
    with np.errstate(divide="ignore"):
        inverse = np.where(scale == 0, 0, 1 / scale)
    x = blocks * inverse
    size = np.abs(x)
    whole = np.floor(size)
    whole += np.floor(2 * (size - whole))
    quants = (np.sign(x) * whole).astype(np.int8)
    with np.errstate(over="ignore"):
        half = scale.astype(np.float16)
    return np.concatenate([half.view(np.uint8), quants.view(np.uint8)], axis=1)
