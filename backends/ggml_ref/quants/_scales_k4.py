"""Blocks of 8 groups of 32 with six-bit scales and minima, which are packed in 12 bytes."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ggml_ref.quants._blocks import F32, U8, float32, groups, ordered_sum, to_half
from ggml_ref.quants._search import with_minimum

Half = npt.NDArray[np.float16]


def unpack(packed: U8) -> tuple[U8, U8]:
    """Unpack [n, 12] bytes to scales and minima [n, 8] (ggml-quants.c:get_scale_min_k4)."""
    a, b, c = packed[:, :4], packed[:, 4:8], packed[:, 8:]
    scales = np.concatenate([a & 63, (c & 15) | (a >> 6) << 4], axis=1)
    minima = np.concatenate([b & 63, (c >> 4) | (b >> 6) << 4], axis=1)
    return scales, minima


def pack(scales: U8, minima: U8) -> U8:
    """Pack scales and minima, the inverse of unpack."""
    s, m = scales, minima
    return np.concatenate(
        [
            s[:, :4] | (s[:, 4:] >> 4) << 6,
            m[:, :4] | (m[:, 4:] >> 4) << 6,
            (s[:, 4:] & 15) | (m[:, 4:] & 15) << 4,
        ],
        axis=1,
    )


def values(d: Half, d_min: Half, packed: U8, q: U8) -> F32:
    """Return values [n, 256] of q [n, 8, 32]."""
    scales, minima = unpack(packed)
    scale = float32(d)[:, None] * scales
    minimum = float32(d_min)[:, None] * minima
    return (scale[:, :, None] * q - minimum[:, :, None]).reshape(-1, 256)


def encode(
    x: npt.NDArray[np.floating], q_max: int, start: float, step: float, n_steps: int
) -> tuple[Half, Half, U8, U8]:
    """Quantize x to d, d_min, packed scales and q [n, 8, 32]."""
    x = groups(x, 256).reshape(-1, 8, 32)
    mean = np.sqrt(ordered_sum(x * x) / np.float32(32))
    scale, minimum, q = with_minimum(x, mean + np.abs(x), q_max, start, step, n_steps)
    d, scales = _six_bits(scale[..., 0])
    d_min, minima = _six_bits(minimum[..., 0])
    scale = float32(d)[:, None] * scales
    minimum = float32(d_min)[:, None] * minima
    safe = np.where(scale == 0, np.float32(1), scale)[..., None]
    again = np.clip(np.rint((x + minimum[..., None]) / safe), 0, q_max).astype(np.uint8)
    return d, d_min, pack(scales, minima), np.where(scale[..., None] == 0, q, again)


def _six_bits(x: F32) -> tuple[Half, U8]:
    """Round [n, 8] non-negative values to a half [n] times 0 .. 63."""
    top = np.maximum(x.max(axis=1, keepdims=True), 0)
    factor = np.where(top > 0, np.float32(63) / np.where(top > 0, top, 1), np.float32(0))
    q = np.minimum(63, np.rint(factor * x).astype(np.int32).astype(np.uint8))
    return to_half(top[:, 0] / np.float32(63)), q
