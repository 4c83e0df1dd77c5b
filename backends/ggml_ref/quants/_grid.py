"""Common code of the iq1, iq2 and iq3 types: codebook points times one scale per group.

ggml quantizes these types with importance weights and lists of near points; its bytes differ. A
group's scale is the best of a few by squared error; each point is the nearest codebook point.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, wraps

import numpy as np
import numpy.typing as npt

from ggml_py.grids import grid
from ggml_ref.quants import _blocks as block
from ggml_ref.quants._blocks import F32, U8
from ggml_ref.quants._nearest import Indices, Search, search

Quantize = Callable[[npt.NDArray[np.floating]], bytes]

EVEN = np.array([s | s.bit_count() % 2 << 7 for s in range(128)], np.uint8)
"""Eight signs of seven: the last one makes the number of minuses even (ksigns_iq2xs)."""

DELTA = np.array([0.125, -0.125], np.float32)  # iq1's constant, added to all values of a point

BLOCKS = 1 << 10  # blocks quantized at a time
RATIOS = (0.9, 1.0, 1.15, 1.3)  # largest value / largest level: the initial values of a scale


@cache
def points(name: str) -> F32:
    """Return a codebook as float32 [number of points, length]."""
    return block.float32(grid(name))


def signs(bits: U8) -> F32:
    """Expand bytes [...] of eight sign bits, lowest first, to 1 or -1 [..., 8]."""
    return 1 - 2 * block.float32(np.unpackbits(bits[..., None], axis=-1, bitorder="little"))


def split_signs(x: F32, even: bool) -> tuple[F32, U8]:
    """Return magnitudes of x [..., 8] and their signs as bytes [...].

    If `even`, an odd number of minuses is corrected by the wrong sign for the smallest magnitude.
    That magnitude is then negative.
    """
    minus, size = x < 0, np.abs(x)
    if even:
        wrong = np.arange(8) == size.argmin(axis=-1)[..., None]
        wrong &= minus.sum(axis=-1, keepdims=True) % 2 == 1
        minus, size = minus ^ wrong, np.where(wrong, -size, size)
    return size, np.packbits(minus, axis=-1, bitorder="little")[..., 0]


def limit_memory(quantize: Quantize) -> Quantize:
    """Return `quantize` applied to BLOCKS blocks of 256 at a time, to limit memory."""

    @wraps(quantize)
    def quantize_pieces(x: npt.NDArray[np.floating]) -> bytes:
        x = x.reshape(-1, 256)
        return b"".join(quantize(x[i : i + BLOCKS]) for i in range(0, len(x), BLOCKS))

    return quantize_pieces


def sum_group(x: F32) -> F32:
    """Return the sum of the values of each group, [..., points, length] -> [..., 1, 1]."""
    return block.ordered_sum(x.reshape(*x.shape[:-2], 1, -1))


def fit(codebook: Search, x: F32, ratios: tuple[float, ...] = RATIOS) -> tuple[F32, F32]:
    """Return scales [..., 1, 1] of groups x [..., points, length], and their reductions of x².

    Each initial scale is refitted to its points by least squares; the best result is chosen.
    """
    largest = np.abs(x).max(axis=(-2, -1), keepdims=True) / codebook.points.max()
    scale = gain = np.zeros_like(largest)
    for ratio in ratios:
        q = codebook.points[codebook.nearest(x * block.inverse(largest / np.float32(ratio)))]
        xq, qq = sum_group(x * q), sum_group(q * q)
        better = (xq > 0) & (xq * xq > gain * qq)
        scale, gain = np.where(better, xq / qq, scale), np.where(better, xq * xq / qq, gain)
    return scale, gain


def round_scales(scale: F32, n: int, unit: int) -> tuple[npt.NDArray[np.float16], U8, F32]:
    """Round scales [n_blocks, groups] to d / unit · (2·step + 1), with step < n.

    Returns d [n_blocks], the steps, and the rounded scales.
    """
    base = scale.max(axis=1, keepdims=True) / np.float32(2 * n - 1)
    d = block.to_half(base * unit)
    base = block.float32(d) / np.float32(unit)
    step = np.clip(np.rint((scale * block.inverse(base) - 1) / 2), 0, n - 1)
    return d[:, 0], step.astype(np.uint8), base * (2 * step + 1)


def encode(name: str, x: F32, n: int, unit: int) -> tuple[npt.NDArray[np.float16], U8, Indices]:
    """Return d, steps and indices of groups x [n_blocks, groups, points, length]."""
    codebook = search(name)
    scale, _ = fit(codebook, x)
    d, step, scale = round_scales(scale[..., 0, 0], n, unit)
    return d, step, codebook.nearest(x * block.inverse(scale)[..., None, None])


def half_steps(d: npt.NDArray[np.float16], step: npt.NDArray[np.integer], factor: float) -> F32:
    """Return scales d · (step + 1/2) · factor of the groups [n_blocks, groups], in ggml's order."""
    scale: F32 = block.float32(d)[:, None] * (np.float32(0.5) + block.float32(step))
    return scale * np.float32(factor)


def pairs(bytes: U8) -> U8:
    """Return nibbles of bytes [n, k] in order, the low one first: [n, 2k]."""
    return np.stack([bytes & 15, bytes >> 4], axis=-1).reshape(len(bytes), -1)


def pack_pairs(nibbles: U8) -> U8:
    return nibbles[:, ::2] | nibbles[:, 1::2] << np.uint8(4)
