"""Ops that resize images."""

from __future__ import annotations

from ggml_py.ops.registry import node, op, require
from ggml_py.tensor import Tensor
from ggml_py.types import F32

MODES = {"nearest": 0, "bilinear": 1, "bicubic": 2}
ALIGN_CORNERS = 1 << 8
ANTIALIAS = 1 << 9


@op("UPSCALE", "mode:i")
def interpolate(
    a: Tensor,
    ne0: int,
    ne1: int,
    ne2: int,
    ne3: int,
    mode: str = "nearest",
    align_corners: bool = False,
    antialias: bool = False,
) -> Tensor:
    """a resampled to [ne0, ne1, ne2, ne3], up or down (ggml.c:ggml_interpolate).

    mode "nearest", "bilinear" or "bicubic" is of dimensions 0 and 1; 2 and 3 are always nearest.
    antialias (bilinear only) widens the filter if the image shrinks. With align_corners the filter
    includes all pixels (ggml omits the last).
    """
    require(mode in MODES, f"interpolate: mode must be one of {list(MODES)}, got {mode!r}", a)
    require(a.type is F32, "interpolate: a must be f32", a)
    require(not antialias or mode == "bilinear", "interpolate: antialias needs bilinear", a)
    ne = (ne0, ne1, ne2, ne3)
    require(
        min(ne) > 0 and not a.is_empty(),
        f"interpolate: the result must have elements, got {list(ne)}",
        a,
    )
    word = MODES[mode] | ALIGN_CORNERS * align_corners | ANTIALIAS * antialias
    return node("UPSCALE", F32, ne, a, params=(word,))


def upscale(a: Tensor, factor: int, mode: str = "nearest", antialias: bool = False) -> Tensor:
    """`factor` times as wide and high (ggml.c:ggml_upscale)."""
    require(factor > 1, f"upscale: the factor must be above 1, got {factor}", a)
    n0, n1, n2, n3 = a.ne
    return interpolate(a, n0 * factor, n1 * factor, n2, n3, mode, antialias=antialias)
