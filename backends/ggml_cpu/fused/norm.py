"""RMS_NORM fused with the multiplication by its weight or by a scalar."""

from __future__ import annotations

from ggml_cpu import vocabulary as v
from ggml_cpu.fusion import fuse
from ggml_cpu.kernel import fn, kernel
from ggml_cpu.kernels._common import n_rows, row_address
from ggml_cpu.kernels.norm import rms_factor, scale_row
from ggml_cpu.step import Step
from ggml_py.fusion import f32_rows, in_place
from ggml_py.fusion.pattern import Match
from ggml_py.patterns.norm import RMS_NORM_MUL, RMS_NORM_SCALE


@fn
def scaled_by_weight(d, x, w, factor, n):
    """d = x * factor * w."""
    i = 0
    while i + v.LANES <= n:
        v.store(d + 4 * i, v.f32_load(x + 4 * i) * factor * v.f32_load(w + 4 * i))
        i += v.LANES
    if i < n:
        y = v.f32_load_n(x + 4 * i, n - i) * factor * v.f32_load_n(w + 4 * i, n - i)
        v.store_n(d + 4 * i, y, n - i)


@kernel()
def rms_norm_mul(p, ith, nth):
    """dst = rms_norm(src0) * src1, src1 one row."""
    n = v.ne(p, 0, 0)
    start, stop = v.split(n_rows(p, 0), ith, nth)
    for r in range(start, stop):
        x = row_address(p, 1, r)
        factor = rms_factor(x, n, v.op_f32(p, 0))
        scaled_by_weight(row_address(p, 0, r), x, v.data(p, 2), factor, n)


def one_row(m: Match) -> str:
    weight = m["weight"]
    row = weight.n_rows == 1 and weight.ne[0] == m["x"].ne[0]
    return f32_rows("x", "weight")(m) if row else f"needs a weight of one row; got {weight}"


@fuse(RMS_NORM_MUL, when=one_row, over=in_place("x"))
def with_weight(m: Match) -> list[Step]:
    y, params = m["product"], m["norm"].op_params()
    return [Step(rms_norm_mul, y, (y, m["x"], m["weight"]), params)]


@kernel()
def rms_norm_scale(p, ith, nth):
    """dst = rms_norm(src0) * scale; params: eps, scale."""
    n = v.ne(p, 0, 0)
    start, stop = v.split(n_rows(p, 0), ith, nth)
    for r in range(start, stop):
        x = row_address(p, 1, r)
        factor = rms_factor(x, n, v.op_f32(p, 0))
        scale_row(row_address(p, 0, r), x, v.float32(factor) * v.op_f32(p, 1), n)


@fuse(RMS_NORM_SCALE, when=f32_rows("x"), over=in_place("x"))
def with_factor(m: Match) -> list[Step]:
    y, params = m["product"], m["norm"].op_params()[:4] + m["product"].op_params()[:4]
    return [Step(rms_norm_scale, y, (y, m["x"]), params)]
