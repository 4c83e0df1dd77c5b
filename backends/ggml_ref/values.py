"""Conversion between a tensor's bytes and NumPy values, for every type and any strides."""

from __future__ import annotations

from types import EllipsisType
from typing import Any

import numpy as np
import numpy.typing as npt

from ggml_py.backend import HostBuffer
from ggml_py.tensor import Tensor
from ggml_py.types import GGMLType
from ggml_ref.quants import dequantizer, quantizer

Array = npt.NDArray[Any]  # array with the type of the tensor's bytes
Values = npt.NDArray[np.float64]
Integers = npt.NDArray[np.integer]
Rows = tuple[int | Array, ...] | EllipsisType

_PLAIN = {"f32": "<f4", "f64": "<f8", "i8": "i1", "i16": "<i2", "i32": "<i4", "i64": "<i8"}


def elements(t: Tensor) -> Array:
    """Return a view: [ne3, ne2, ne1, ne0], or bytes [ne3, ne2, ne1, n_blocks, type_size]."""
    assert isinstance(t.buffer, HostBuffer), f"{t} is not in host memory"
    raw = t.buffer.view(t.offset, t.nbytes)
    n0, *outer = t.ne
    b0, *strides = t.nb
    if t.type.name in _PLAIN:
        return np.ndarray(t.ne[::-1], _PLAIN[t.type.name], raw, 0, t.nb[::-1])
    shape = (*outer[::-1], n0 // t.type.block_size, t.type.type_size)
    return np.ndarray(shape, np.uint8, raw, 0, (*strides[::-1], b0, 1))


def load(t: Tensor, where: Rows = ...) -> Array:
    """Return values as float64, or int64 of an integer type; `where` selects rows: (i3, i2, i1)."""
    found: Array = elements(t)[where]
    if t.type.name in _PLAIN:
        return _widen(found)
    dequantize = dequantizer(t.type)
    assert dequantize is not None, t.type.name
    values = dequantize(found.reshape(-1, t.type.type_size))
    return _widen(values).reshape(*found.shape[:-2], t.ne[0])


def _widen(values: Array) -> Array:
    with np.errstate(invalid="ignore"):  # random bytes may be signalling NaNs
        return values.astype(np.int64 if values.dtype.kind == "i" else np.float64)


def store(t: Tensor, values: Array, where: Rows = ...) -> None:
    """Round values to the tensor's type and write them; floats become integers by truncation."""
    target = elements(t)
    if t.type.name in _PLAIN:
        target[where] = values
        return
    quantize = quantizer(t.type)
    assert quantize is not None, t.type.name
    blocks = np.frombuffer(quantize(np.ascontiguousarray(values)), np.uint8)
    target[where] = blocks.reshape(*values.shape[:-1], *target.shape[-2:])


def copy(dst: Tensor, src: Tensor) -> None:
    """Copy src's elements, in order, into dst's memory; the same bits if the types are the same."""
    if dst.type is src.type:
        target = elements(dst)
        target[...] = elements(src).reshape(target.shape)
    else:
        store(dst, load(src).reshape(dst.ne[::-1]))


def unreadable(type: GGMLType) -> bool:
    return type.name not in _PLAIN and dequantizer(type) is None


def unwritable(type: GGMLType) -> bool:
    return type.name not in _PLAIN and quantizer(type) is None
