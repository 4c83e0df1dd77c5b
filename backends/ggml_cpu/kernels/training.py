"""Training ops: cross-entropy loss, optimizer steps (AdamW, SGD) and COUNT_EQUAL."""

from __future__ import annotations

from ggml_cpu import vocabulary as v
from ggml_cpu.kernel import fn, kernel
from ggml_cpu.kernels._common import (
    CHUNK,
    F32,
    count_chunks,
    dense_rows,
    n_rows,
    require_all,
    row_address,
    types_are,
)
from ggml_cpu.kernels._map import map_pairs, map_vectors
from ggml_cpu.kernels.attention.soft_max import exponentials
from ggml_py.tensor import Tensor

MINUS_INFINITY = float("-inf")


@fn
def copied_top(d, x, n):
    """Copy a row; return its maximum."""
    top = v.f32(MINUS_INFINITY)
    for i in range(0, n, v.LANES):
        y = v.f32_load_n(x + 4 * i, n - i)
        v.store_n(d + 4 * i, y, n - i)
        top = v.vmax(v.select(v.iota() < n - i, y, MINUS_INFINITY), top)
    return v.vmaxval(top)


def losses_scratch(node: Tensor, nth: int) -> tuple[int, int]:
    """Return scratch bytes; shared: one f64 loss per row, local: a row."""
    a = node.source(0)
    return 8 * a.n_rows, 4 * a.ne[0]


@kernel()
def row_losses(p, ith, nth):
    """Store sum(labels * (log(sum(exp(x - top))) - (x - top))) of each row, in float64."""
    n, spare = v.ne(p, 1, 0), v.local(p, ith)
    start, stop = v.split(n_rows(p, 1), ith, nth)
    for r in range(start, stop):
        x, labels = row_address(p, 1, r), row_address(p, 2, r)
        top = copied_top(spare, x, n)
        whole = v.logf(exponentials(spare, n, top)) + top
        total = v.to_f64(v.f32(0.0))
        for i in range(0, n, v.LANES):
            loss = v.f32(v.float32(whole)) - v.f32_load_n(x + 4 * i, n - i)
            label = v.f32_load_n(labels + 4 * i, n - i)
            total = v.fma(v.to_f64(label), v.to_f64(loss), total)
        v.st_f64(v.shared(p) + 8 * r, v.vsum(total))


@kernel(
    "CROSS_ENTROPY_LOSS",
    when=require_all(types_are("f32", "f32", "f32"), dense_rows),
    scratch=losses_scratch,
    prepare=(row_losses,),
)
def cross_entropy_loss_f32(p, ith, nth):
    if ith == 0:
        total, rows = 0.0, n_rows(p, 1)
        for r in range(rows):
            total += v.ld_f64(v.shared(p) + 8 * r)
        v.st_f32(v.data(p, 0), total / rows)


@kernel("CROSS_ENTROPY_LOSS_BACK", when=require_all(types_are(*["f32"] * 4), dense_rows))
def cross_entropy_loss_back_f32(p, ith, nth):
    n, grad = v.ne(p, 0, 0), v.ld_f32(v.data(p, 1)) / n_rows(p, 0)
    start, stop = v.split(n_rows(p, 0), ith, nth)
    for r in range(start, stop):
        d, labels = row_address(p, 0, r), row_address(p, 3, r)
        top = copied_top(d, row_address(p, 2, r), n)
        factor = v.float32(1.0 / exponentials(d, n, top))
        for i in range(0, n, v.LANES):
            y = v.f32_load_n(d + 4 * i, n - i) * factor - v.f32_load_n(labels + 4 * i, n - i)
            v.store_n(d + 4 * i, y * v.float32(grad), n - i)


@fn
def adamw_params(p):
    """Return rate, beta1, beta2, eps, the weight decay factor, and the scales of both moments."""
    at = v.data(p, 5)
    rate, keep = v.ld_f32(at), v.float32(1.0) - v.ld_f32(at) * v.ld_f32(at + 16)
    beta1, beta2, eps = v.ld_f32(at + 4), v.ld_f32(at + 8), v.ld_f32(at + 12)
    return rate, beta1, beta2, eps, keep, v.ld_f32(at + 20), v.ld_f32(at + 24)


@fn
def adamw_step(p, i, n, rate, beta1, beta2, eps, keep, scale1, scale2):
    w, first, second = v.data(p, 0) + 4 * i, v.data(p, 3) + 4 * i, v.data(p, 4) + 4 * i
    g = v.f32_load_n(v.data(p, 2) + 4 * i, n)
    m = v.f32_load_n(first, n) * beta1 + g * (v.float32(1.0) - beta1)
    s = v.f32_load_n(second, n) * beta2 + g * g * (v.float32(1.0) - beta2)
    step = m * (scale1 * rate) / (v.vsqrt(s * scale2) + eps)
    v.store_n(first, m, n)
    v.store_n(second, s, n)
    v.store_n(w, v.f32_load_n(w, n) * keep - step, n)


adamw_vectors = map_vectors(adamw_step, adamw_params)


@kernel("OPT_STEP_ADAMW", when=types_are(*["f32"] * 6))
def opt_step_adamw_f32(p, ith, nth):
    adamw_vectors(p, ith, nth)


@fn
def sgd_params(p):
    rate = v.ld_f32(v.data(p, 3))
    return rate, v.float32(1.0) - rate * v.ld_f32(v.data(p, 3) + 4)


@fn
def sgd_step(w, g, rate, keep):
    return w * keep - g * rate


sgd_rows = map_pairs(sgd_step, F32, F32, sgd_params, repeated=0)


@kernel("OPT_STEP_SGD", when=types_are(*["f32"] * 4))
def opt_step_sgd_f32(p, ith, nth):
    sgd_rows(p, ith, nth)


@kernel()
def count_from_zero(p, ith, nth):
    if ith == 0:
        v.st_i64(v.data(p, 0), 0)


@fn
def equal_words(a, b, n):
    """Return the number of equal elements in two contiguous i32 arrays."""
    count, i = v.i32(0), 0
    while i + v.LANES <= n:
        count = v.select(v.i32_load(a + 4 * i) == v.i32_load(b + 4 * i), count + 1, count)
        i += v.LANES
    total = v.vsum(count)
    for k in range(i, n):
        total += int(v.ld_i32(a + 4 * k) == v.ld_i32(b + 4 * k))
    return total


@kernel("COUNT_EQUAL", when=types_are("i64", "i32", "i32"), prepare=(count_from_zero,))
def count_equal_i32(p, ith, nth):
    count, n = 0, v.ne(p, 1, 0)
    step_a, step_b, pieces = v.nb(p, 1, 0), v.nb(p, 2, 0), count_chunks(n)
    start, stop = v.split(n_rows(p, 1) * pieces, ith, nth)
    for u in range(start, stop):
        r, c = u // pieces, u % pieces * CHUNK
        a, b = row_address(p, 1, r) + c * step_a, row_address(p, 2, r) + c * step_b
        if step_a == 4 and step_b == 4:
            count += equal_words(a, b, min(CHUNK, n - c))
        else:
            for i in range(min(CHUNK, n - c)):
                count += int(v.ld_i32(a + i * step_a) == v.ld_i32(b + i * step_b))
    v.atomic_add(v.data(p, 0), count)
