"""SSM_CONV: the causal depthwise convolution before an SSM recurrence."""

from __future__ import annotations

from ggml_cpu import vocabulary as v
from ggml_cpu.kernel import fn, kernel
from ggml_cpu.kernels._common import dense_rows, require_all, types_are
from ggml_cpu.target import LANES

X, W = 1, 2


@fn
def channels(x, x_step, w, w_step, d_conv, rows, n, to, to_step):
    """Compute n <= LANES tokens of up to LANES channels; the channels of dst are contiguous."""
    tile = v.f32_regs(LANES)
    for r in range(LANES):
        at, weights = x + min(r, rows - 1) * x_step, w + min(r, rows - 1) * w_step
        y = v.f32(0.0)
        for j in range(d_conv):
            y = v.fma(v.f32_load_n(at + 4 * j, n), v.f32_bcast(weights + 4 * j), y)
        tile[r] = y
    v.transpose(tile)
    for i in range(LANES):
        if i < n:
            v.store_n(to + i * to_step, tile[i], rows)


@fn
def pair_sums(x, y):
    return v.evens(x, y) + v.odds(x, y)


@fn
def products(x, w, i):
    return v.f32_load(x + 4 * i) * v.f32_load(w + 4 * i)


@fn
def one_token(x, w, n, to):
    """Compute one token for d_conv = 4, with inputs and weights contiguous over the channels."""
    for c in range(0, n - LANES + 1, LANES):
        i = 4 * c
        a = pair_sums(products(x, w, i), products(x, w, i + LANES))
        b = pair_sums(products(x, w, i + 2 * LANES), products(x, w, i + 3 * LANES))
        v.store(to + 4 * c, pair_sums(a, b))
    for c in range(n // LANES * LANES, n):
        y = v.f32x4_load(x + 16 * c) * v.f32x4_load(w + 16 * c)
        v.st_f32(to + 4 * c, v.vsum(y))


@kernel("SSM_CONV", when=require_all(types_are("f32", "f32", "f32"), dense_rows))
def ssm_conv_f32(p, ith, nth):
    n_channels, n_tokens, d_conv = v.ne(p, 0, 0), v.ne(p, 0, 1), v.ne(p, W, 0)
    x_step, w_step = v.nb(p, X, 1), v.nb(p, W, 1)
    small = n_tokens == 1 and d_conv == 4 and x_step == 16 and w_step == 16
    span = 64 * LANES if small else LANES
    blocks = (n_channels + span - 1) // span
    start, stop = v.split(blocks * v.ne(p, 0, 2), ith, nth)
    for u in range(start, stop):
        c, b = u % blocks * span, u // blocks
        x = v.data(p, X) + c * x_step + b * v.nb(p, X, 2)
        w, to = v.data(p, W) + c * w_step, v.data(p, 0) + 4 * c + b * v.nb(p, 0, 2)
        n = min(span, n_channels - c)
        if small:
            one_token(x, w, n, to)
        else:
            for t in range(0, n_tokens, LANES):
                m, at = min(LANES, n_tokens - t), to + t * v.nb(p, 0, 1)
                channels(x + 4 * t, x_step, w, w_step, d_conv, n, m, at, v.nb(p, 0, 1))
