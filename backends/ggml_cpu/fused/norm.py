"""RMS_NORM followed by its weight or by a factor."""

from __future__ import annotations

from ggml_cpu import vocabulary as v
from ggml_cpu.kernel import fn, kernel
from ggml_cpu.kernels._common import n_rows, row_at
from ggml_cpu.kernels.norm import scaled, sum_of_squares
from ggml_cpu.step import Step
from ggml_cpu.window import Window, rewrite
from ggml_py.types import F32


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
        x = row_at(p, 1, r)
        mean = sum_of_squares(x, n) / n
        factor = 1.0 / v.sqrtf(mean + v.op_f32(p, 0))
        scaled_by_weight(row_at(p, 0, r), x, v.data(p, 2), factor, n)


@rewrite("RMS_NORM")
def with_weight(w: Window, i: int) -> None:
    j = w.only_reader(i)
    if j < 0 or w.op(j) != "MUL":
        return
    norm, product = w.step(i).node, w.step(j).node
    weight = product.src[1]
    if product.src[0] is not norm or weight is None or weight.type is not F32:
        return
    x = norm.src[0]
    if weight.ne == (norm.ne[0], 1, 1, 1) and weight.is_contiguous() and product.ne == norm.ne:
        w.merge((i, j), j, Step(rms_norm_mul, product, (product, x, weight), norm.op_params()))


@kernel()
def rms_norm_scale(p, ith, nth):
    """dst = rms_norm(src0) * scale; params: eps, scale."""
    n = v.ne(p, 0, 0)
    start, stop = v.split(n_rows(p, 0), ith, nth)
    for r in range(start, stop):
        x = row_at(p, 1, r)
        mean = sum_of_squares(x, n) / n
        factor = 1.0 / v.sqrtf(mean + v.op_f32(p, 0))
        scaled(row_at(p, 0, r), x, v.float32(factor) * v.op_f32(p, 1), n)


@rewrite("RMS_NORM")
def with_factor(w: Window, i: int) -> None:
    j = w.only_reader(i)
    if j < 0 or w.op(j) != "SCALE":
        return
    norm, product = w.step(i).node, w.step(j).node
    if product.src[0] is norm and not product.param("bias"):
        params = norm.op_params()[:4] + product.op_params()[:4]
        w.merge((i, j), j, Step(rms_norm_scale, product, (product, norm.src[0]), params))
