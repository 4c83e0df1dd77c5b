"""Resizing of images with Pillow's integer arithmetic (mtmd-image.cpp:img_tool::resize_pillow).

Each pixel is a weighted sum of the pixels below the filter, first along rows, then along columns;
both results are rounded.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import numpy as np
import numpy.typing as npt

from ggml_py.errors import ModelError

U8 = npt.NDArray[np.uint8]
Size = tuple[int, int]  # width, height

BITS = 32 - 8 - 2  # fractional bits of weights
LARGEST = 65536


def _bilinear(x: float) -> float:
    x = abs(x)
    return 1.0 - x if x < 1.0 else 0.0


def _bicubic(x: float) -> float:
    a, x = -0.5, abs(x)
    if x < 1.0:
        return ((a + 2.0) * x - (a + 3.0)) * x * x + 1
    return (((x - 5) * x + 8) * x - 4) * a if x < 2.0 else 0.0


FILTERS: dict[str, tuple[Callable[[float], float], float]] = {
    "bilinear": (_bilinear, 1.0),
    "bicubic": (_bicubic, 2.0),
}


def resize(image: U8, size: Size, how: str) -> U8:
    """Resize u8 [height, width, 3]; how: a key of FILTERS. ModelError for a side above 65536
    pixels."""
    if not 0 < min(size) <= max(size) <= LARGEST:
        raise ModelError(
            f"sides of the resized image must have at most {LARGEST} pixels, got {size[0]} x "
            f"{size[1]}; use an image that is less long or less wide"
        )
    if size[0] != image.shape[1]:
        image = _columns(image.swapaxes(0, 1), size[0], how).swapaxes(0, 1)
    if size[1] != image.shape[0]:
        image = _columns(image, size[1], how)
    return np.ascontiguousarray(image)


def _columns(image: U8, n: int, how: str) -> U8:
    """Resize the first dimension to n."""
    n_in, *rest = image.shape
    rows = image.reshape(n_in, -1)
    out = np.empty((n, rows.shape[1]), np.uint8)
    for i, (first, weights) in enumerate(_weights(n_in, n, how)):
        # Integers below 2^53 are exact as float64, and float64 products are fast.
        sums = weights @ rows[first : first + weights.size].astype(np.float64)
        whole = (sums.astype(np.int64) + (1 << (BITS - 1))) >> BITS
        out[i] = np.clip(whole, 0, 255)
    return out.reshape(n, *rest)


def _weights(n_in: int, n: int, how: str) -> Iterator[tuple[int, npt.NDArray[np.float64]]]:
    """Yield for each of n pixels the first pixel below its filter, and the weights from there
    on."""
    function, support = FILTERS[how]
    scale = n_in / n
    wide = max(scale, 1.0)
    support *= wide
    for i in range(n):
        centre = (i + 0.5) * scale
        first = max(int(centre - support + 0.5), 0)
        last = min(int(centre + support + 0.5), n_in)
        found = [function((x - centre + 0.5) * (1.0 / wide)) for x in range(first, last)]
        total = 0.0
        for w in found:  # the order matters
            total += w
        if total != 0.0:
            found = [w / total for w in found]
        whole = (w * (1 << BITS) + math.copysign(0.5, w) for w in found)
        yield first, np.array([math.trunc(w) for w in whole], np.float64)


def fit(image: U8, size: Size, how: str, colour: tuple[int, int, int] = (0, 0, 0)) -> U8:
    """Resize an image to fit `size`, centered; the rest is filled with a color."""
    height, width = image.shape[:2]
    if (width, height) == size:
        return image
    ratios = [np.float32(a) / np.float32(b) for a, b in zip(size, (width, height), strict=True)]
    scale = min(ratios)
    inner = tuple(
        min(math.ceil(np.float32(n) * scale), most)
        for n, most in zip((width, height), size, strict=True)
    )
    small = resize(image, (inner[0], inner[1]), how)
    x, y = (size[0] - inner[0]) // 2, (size[1] - inner[1]) // 2
    out = np.empty((size[1], size[0], 3), np.uint8)
    out[:] = colour
    out[y : y + inner[1], x : x + inner[0]] = small
    return out


def align_size(size: Size, step: int, least: int, most: int) -> Size:
    """Return the nearest size with sides that are multiples of step, about the same shape, and at
    least `least` and at most `most` pixels (img_tool::calc_size_preserved_ratio)."""
    f32 = np.float32
    width, height = (f32(n) for n in size)

    def in_steps(x: np.floating, to: Callable[[float], int]) -> int:
        return to(float(f32(x) / f32(step))) * step

    def nearest(x: float) -> int:
        return math.floor(x + 0.5)

    w, h = (max(step, in_steps(n, nearest)) for n in (width, height))
    if w * h > most:
        beta = np.sqrt(height * width / f32(most))
        w, h = (max(step, in_steps(n / beta, math.floor)) for n in (width, height))
    elif w * h < least:
        beta = np.sqrt(f32(least) / (height * width))
        w, h = (in_steps(n * beta, math.ceil) for n in (width, height))
    return w, h
