"""Quantizer of q6_0 (ggml-quants.c:quantize_row_q6_0_impl of ik_llama.cpp).

d | upper two bits u8 [8] | u8 [16]. After the search for a scale, single levels move by one while
the error falls. Without importance, the weights are x^2.
"""

from __future__ import annotations

from ggml_cpu import vocabulary as v
from ggml_cpu.kernel import fn
from ggml_cpu.quantize.format import register
from ggml_cpu.quantize.lanes import (
    LEVELS,
    SIGMA,
    W,
    X,
    add_steps,
    extreme,
    is_zero,
    load_integers,
    load_lanes,
    mul,
    put,
    put_byte,
    put_half,
    round_product,
)
from ggml_cpu.quantize.steps import put_nibbles

MOST = 32.0


@fn
def gains(m, factor, fused):
    """Return the sums of w * x * q and w * q * q, q the level of factor * x."""
    qx, qq = v.f32x16(0.0), v.f32x16(0.0)
    for i in range(32):
        x, w = load_lanes(m + X, i), load_lanes(m + W, i)
        q = round_product(factor, x, -MOST, MOST - 1.0)
        if fused:
            qx, qq = v.fma(mul(w, x), q, qx), v.fma(mul(w, q), q, qq)
        else:
            qx, qq = qx + mul(mul(w, x), q), qq + mul(mul(w, q), q)
    return qx, qq


@fn
def move_one(m, scale, qx, qq):
    """Move the level with the steepest error by 1; return the new sums, and a mask of lanes where
    the error is smaller."""
    steepest, slope, at = v.f32x16(0.0), v.f32x16(0.0), v.f32x16(-1.0)
    for i in range(32):
        q = load_lanes(m + LEVELS, i)
        g = mul(mul(scale, load_lanes(m + W, i)), v.fma(-scale, q, load_lanes(m + X, i)))
        usable = ((g > 0.0) & (q < MOST - 1.0)) | ((g < 0.0) & (q > -MOST))
        more = usable & (v.vabs(g) > steepest)
        steepest, slope = v.select(more, v.vabs(g), steepest), v.select(more, g, slope)
        at = v.select(more, v.f32x16(v.float32(i)), at)
    x, w, q = v.f32x16(0.0), v.f32x16(0.0), v.f32x16(0.0)
    for i in range(32):
        here = at == v.float32(i)
        x, w = v.select(here, load_lanes(m + X, i), x), v.select(here, load_lanes(m + W, i), w)
        q = v.select(here, load_lanes(m + LEVELS, i), q)
    step = v.select(slope > 0.0, v.f32x16(1.0), v.f32x16(-1.0))
    new_qx, new_qq = qx + mul(w, x * step), v.fma(w, (q * 2.0) * step + 1.0, qq)
    better = (at >= 0.0) & (new_qq > 0.0) & (mul(new_qx, new_qx) > mul(mul(scale, qx), new_qq))
    for i in range(32):
        moved = better & (at == v.float32(i))
        put(m + LEVELS, i, v.select(moved, q + step, load_lanes(m + LEVELS, i)))
    return v.select(better, new_qx, qx), v.select(better, new_qq, qq), better


@fn
def best_scale(m):
    """Return the scale; store the levels plus 32."""
    top = extreme(m + X, 32)
    zero, one = is_zero(top), v.f32x16(1.0)
    top = v.select(zero, one, top)
    factor = v.f32x16(-MOST) / top
    best_qx, best_qq = gains(m, factor, True)
    some = best_qq != 0.0
    scale = v.select(some, best_qx / v.select(some, best_qq, one), v.f32x16(0.0))
    best = mul(scale, best_qx)
    for i in range(-9, 10):
        for sign in range(2):
            tried = v.f32x16(add_steps(MOST - v.float32(sign), 0.1, i)) / top
            tried = -tried if sign == 0 else tried
            qx, qq = gains(m, tried, False)
            better = (qq > 0.0) & (mul(qx, qx) > mul(best, qq))
            scale = v.select(better, qx / v.select(better, qq, one), scale)
            best = v.select(better, mul(scale, qx), best)
            best_qx, best_qq = v.select(better, qx, best_qx), v.select(better, qq, best_qq)
            factor = v.select(better, tried, factor)
    for i in range(32):
        q = round_product(factor, load_lanes(m + X, i), -MOST, MOST - 1.0)
        put(m + LEVELS, i, q)
    going = ~zero
    for _ in range(32 * 63):
        best_qx, best_qq, going = move_one(m, scale, best_qx, best_qq)
        scale = v.select(going, best_qx / v.select(going, best_qq, one), scale)
        if not v.vany(going):
            break
    for i in range(32):
        q = load_lanes(m + LEVELS, i) + MOST
        put(m + LEVELS, i, v.select(zero, v.f32x16(0.0), q))
    return v.select(zero, v.f32x16(0.0), scale)


@fn
def put_block(m):
    put_half(m, 0, best_scale(m))
    for i in range(8):
        bits = v.i32x16(0)
        for part in range(4):
            from_ = 8 * (part // 2) + 16 * (part % 2) + i
            bits = bits | ((load_integers(m + LEVELS, from_) >> 4) << (2 * part))
        put_byte(m, 2 + i, bits)
    put_nibbles(m, 10, 16, m + LEVELS)


@fn
def encode_plain(m):
    for i in range(32):
        put(m + W, i, mul(load_lanes(m + X, i), load_lanes(m + X, i)))
    put_block(m)


@fn
def encode_weighted(m):
    sigma = v.f32x16_load(m + SIGMA)
    for i in range(32):
        x = load_lanes(m + X, i)
        put(m + W, i, mul(load_lanes(m + W, i), v.vsqrt(v.fma(x, x, sigma))))
    put_block(m)


register("q6_0", encode_plain, encode_weighted, by_row=True)
