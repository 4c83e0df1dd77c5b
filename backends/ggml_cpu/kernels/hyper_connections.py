"""DSV4_HC_PRE, DSV4_HC_COMB, DSV4_HC_POST: hyper-connections of DeepSeek-V4.

A layer reads and writes several residual streams.
"""

from __future__ import annotations

from ggml_cpu import vocabulary as v
from ggml_cpu.kernel import fn, kernel
from ggml_cpu.kernels._common import dense_rows, require_all, row_address, types_are
from ggml_py.tensor import Tensor


def require_gates(node: Tensor) -> str:
    return "" if node.param("gated") else "needs gates"


def require_weights(node: Tensor) -> str:
    return "needs one weight per stream" if node.param("gated") else ""


@kernel("DSV4_HC_PRE", when=require_all(types_are("f32", "f32", "f32"), dense_rows, require_gates))
def dsv4_hc_pre_gated_f32(p, ith, nth):
    n = v.ne(p, 1, 0)
    start, stop = v.split(v.ne(p, 1, 2), ith, nth)
    for t in range(start, stop):
        x, gates = v.data(p, 1) + t * v.nb(p, 1, 2), v.data(p, 2) + t * v.nb(p, 2, 2)
        for i in range(0, n, v.LANES):
            total = v.f32(0.0)
            for s in range(v.ne(p, 1, 1)):
                stream = v.f32_load_n(x + s * v.nb(p, 1, 1) + 4 * i, n - i)
                gate = v.f32_load_n(gates + s * v.nb(p, 2, 1) + 4 * i, n - i)
                total = v.fma(stream, v.vsigmoid(gate), total)
            v.store_n(row_address(p, 0, t) + 4 * i, total * v.op_f32(p, 0), n - i)


@kernel(
    "DSV4_HC_PRE", when=require_all(types_are("f32", "f32", "f32"), dense_rows, require_weights)
)
def dsv4_hc_pre_f32(p, ith, nth):
    n, n_streams = v.ne(p, 1, 0), v.ne(p, 1, 1)
    start, stop = v.split(v.ne(p, 1, 2), ith, nth)
    for t in range(start, stop):
        x, weights = v.data(p, 1) + t * v.nb(p, 1, 2), v.data(p, 2) + t * v.nb(p, 2, 1)
        for i in range(0, n, v.LANES):
            total = v.f32(0.0)
            for s in range(n_streams):
                stream = v.f32_load_n(x + s * v.nb(p, 1, 1) + 4 * i, n - i)
                total = v.fma(stream, v.f32(v.ld_f32(weights + 4 * s)), total)
            v.store_n(row_address(p, 0, t) + 4 * i, total * v.op_f32(p, 0), n - i)


@fn
def soft_max_row(mixes, base, scale, eps):
    """Return softmax(mixes * scale + base) + eps of the four weights of one stream."""
    x = v.f32x4_load(mixes) * scale + v.f32x4_load(base)
    e = v.vexp(x - v.vmaxval(x))
    return e / v.vsum(e) + eps


@kernel("DSV4_HC_COMB", when=require_all(types_are("f32", "f32", "f32", "f32"), dense_rows))
def dsv4_hc_comb_f32(p, ith, nth):
    """Normalize each token's 4 x 4 mixing matrix with Sinkhorn iterations.

    A vector holds the weights from one stream to the four streams.
    """
    eps, n_iter = v.op_f32(p, 0), v.op_i32(p, 1)
    scale, base = v.ld_f32(v.data(p, 2) + 8), v.data(p, 3) + 32
    start, stop = v.split(v.ne(p, 1, 1), ith, nth)
    for t in range(start, stop):
        x, d = v.data(p, 1) + t * v.nb(p, 1, 1) + 32, v.data(p, 0) + t * v.nb(p, 0, 2)
        r0 = soft_max_row(x, base, scale, eps)
        r1 = soft_max_row(x + 16, base + 16, scale, eps)
        r2 = soft_max_row(x + 32, base + 32, scale, eps)
        r3 = soft_max_row(x + 48, base + 48, scale, eps)
        for i in range(n_iter):
            if i > 0:
                r0, r1 = r0 / (v.vsum(r0) + eps), r1 / (v.vsum(r1) + eps)
                r2, r3 = r2 / (v.vsum(r2) + eps), r3 / (v.vsum(r3) + eps)
            sums = r0 + r1 + r2 + r3 + eps
            r0, r1, r2, r3 = r0 / sums, r1 / sums, r2 / sums, r3 / sums
        v.store(d, r0)
        v.store(d + 16, r1)
        v.store(d + 32, r2)
        v.store(d + 48, r3)


@kernel("DSV4_HC_POST", when=require_all(types_are(*["f32"] * 4), dense_rows))
def dsv4_hc_post_f32(p, ith, nth):
    n, n_streams = v.ne(p, 0, 0), v.ne(p, 0, 1)
    start, stop = v.split(n_streams * v.ne(p, 0, 2), ith, nth)
    for u in range(start, stop):
        to, t = u % n_streams, u // n_streams
        x, residual = v.data(p, 1) + t * v.nb(p, 1, 1), v.data(p, 2) + t * v.nb(p, 2, 2)
        post = v.f32_bcast(v.data(p, 3) + 4 * to + t * v.nb(p, 3, 1))
        comb = v.data(p, 4) + 4 * to + t * v.nb(p, 4, 2)
        d = v.data(p, 0) + to * v.nb(p, 0, 1) + t * v.nb(p, 0, 2)
        for i in range(0, n, v.LANES):
            y = v.f32_load_n(x + 4 * i, n - i) * post
            if v.data(p, 4) == 0:
                y = y + v.f32_load_n(residual + to * v.nb(p, 2, 1) + 4 * i, n - i)
            else:
                for s in range(n_streams):
                    stream = v.f32_load_n(residual + s * v.nb(p, 2, 1) + 4 * i, n - i)
                    y = v.fma(stream, v.f32_bcast(comb + s * v.nb(p, 4, 1)), y)
            v.store_n(d + 4 * i, y, n - i)
