"""Tiling of large images (mtmd-image.cpp:mtmd_image_preprocessor_llava_uhd)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from llama_py.vision.resize import U8, Size, fit, resize


def tiles(image: U8, side: int, most: int, how: str) -> list[U8]:
    """Split an image into square tiles, row by row, followed by the whole image; it alone, if it is
    not larger.

    side  side of a tile;  most  maximum tiles per side of the image;  how  a value of FILTERS
    """
    height, width = image.shape[:2]
    whole = resize(image, (side, side), how)
    if max(width, height) <= side:
        return [whole]
    sizes = [(x * side, y * side) for x in range(1, most + 1) for y in range(1, most + 1)]
    size = best_size((width, height), sizes[1:])
    large = fit(image, size, how)
    found = [
        large[y : y + side, x : x + side]
        for y in range(0, size[1], side)
        for x in range(0, size[0], side)
    ]
    return [*found, whole]


def best_size(size: Size, known: Sequence[Size]) -> Size:
    """Choose the known size that shows most of an image, with the least empty area."""
    f32 = np.float32

    def visible_area(other: Size) -> int:
        scale = min(f32(a) / f32(b) for a, b in zip(other, size, strict=True))
        return min(int(f32(size[0]) * scale) * int(f32(size[1]) * scale), size[0] * size[1])

    return max(
        known, key=lambda other: (visible_area(other), visible_area(other) - other[0] * other[1])
    )
