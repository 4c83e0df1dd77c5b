"""RMS_NORM with a weight, with a further sum, or with a factor."""

from __future__ import annotations

from ggml_opencl.table import Launch, fuse
from ggml_py.fusion import f32_rows, in_place
from ggml_py.pattern import Match
from ggml_py.patterns.norm import RMS_NORM_MUL, RMS_NORM_MUL_ADD, RMS_NORM_SCALE
from ggml_py.tensor import Tensor


def _by_row(kernel: str, m: Match, *more: Tensor, factor: tuple[float, ...] = ()) -> list[Launch]:
    tensors, groups = (m["x"], *more, m.result), (m.result.n_rows, 1, 1)
    return [Launch("fused/norm", kernel, tensors, groups, (float(m["norm"].param("eps")), *factor))]


@fuse(RMS_NORM_MUL_ADD, when=f32_rows("x", "weight", "y"), over=in_place("x"))
def rms_norm_mul_add(m: Match) -> list[Launch]:
    return _by_row("rms_norm_mul_add", m, m["weight"], m["y"])


@fuse(RMS_NORM_MUL, when=f32_rows("x", "weight"), over=in_place("x"))
def rms_norm_mul(m: Match) -> list[Launch]:
    return _by_row("rms_norm_mul", m, m["weight"])


@fuse(RMS_NORM_SCALE, when=f32_rows("x"), over=in_place("x"))
def rms_norm_scale(m: Match) -> list[Launch]:
    return _by_row("rms_norm_scale", m, factor=(float(m["product"].param("scale")),))
