"""Quantizer of iq4_kss (iqk_quantize.cpp:quantize_row_iq4_kss_impl of ik_llama.cpp).

Rows begin with d f32. Block: u16 [8][8]; bit 0 of the words of a group has its code, a bit each.
The other bits u are four indices u ^ (u << 1), of even parity.
"""

from __future__ import annotations

import numpy as np

from ggml_cpu import vocabulary as v
from ggml_cpu.kernel import fn
from ggml_cpu.quantize.format import RowSteps, register
from ggml_cpu.quantize.lanes import (
    SPARE,
    SUMS,
    VECTOR,
    W,
    X,
    divide,
    extreme,
    load_lanes,
    mul,
    put,
    put_bytes,
)
from ggml_cpu.quantize.points import load_codes
from ggml_cpu.quantize.shifted import (
    ZERO,
    build_lookup,
    clear,
    fitted_scale,
    of_larger,
    round_odd,
    shifted_table,
    start_odd,
    weigh_groups,
)

LEVELS, ROW, FIRST = shifted_table(4)
_, find_index = build_lookup(4)
TRIES = 7
MOST = 3.4028234663852886e38
ODD_ONES = np.array([i.bit_count() % 2 for i in range(16)], np.int32).tobytes()
FOUR, FOUR_W, FOUR_Q = SPARE, SPARE + 4 * VECTOR, SPARE + 8 * VECTOR
WORDS, OTHER_WORDS = SPARE + 16 * VECTOR, SPARE + 24 * VECTOR


@fn
def load_four(m, x, w, k):
    """Load the four values of word k of a group."""
    for j in range(4):
        i = 2 * k + j // 2 + 16 * (j % 2)
        put(m + FOUR, j, load_lanes(x, i))
        put(m + FOUR_W, j, load_lanes(w, i))


@fn
def level(levels, index):
    return v.f32_gather(levels, index)


@fn
def find_four(m, factor, scale, levels):
    """Store indices of four levels in FOUR_Q, of even parity.

    If the parity is odd, the index with the cheapest change changes. As in ik_llama.cpp, the cost
    is the difference from the level of the table that is not shifted.
    """
    odd = v.i32x16(0)
    for j in range(4):
        index = v.to_i32(find_index(mul(factor, load_lanes(m + FOUR, j)), levels))
        put(m + FOUR_Q, j, index)
        odd = odd ^ v.i32_gather(v.table(ODD_ONES), index)
    least, at, instead = v.f32x16(MOST), v.i32x16(-1), v.i32x16(0)
    for j in range(4):
        x, w, index = load_lanes(m + FOUR, j), load_lanes(m + FOUR_W, j), load_codes(m + FOUR_Q, j)
        before = v.fma(scale, level(v.table(LEVELS), index), -x)
        square, ones = mul(before, before), v.i32_gather(v.table(ODD_ONES), index)
        for step in range(-2, 3):
            if step != 0:
                other = v.vmin(v.vmax(index + step, v.i32x16(0)), v.i32x16(15))
                after = v.fma(scale, level(levels, other), -x)
                cost = mul(w, v.fma(after, after, -square))
                changes = v.i32_gather(v.table(ODD_ONES), other) != ones
                less = changes & (other == index + step) & (cost < least)
                least, at = v.select(less, cost, least), v.select(less, v.i32x16(j), at)
                instead = v.select(less, other, instead)
    for j in range(4):
        change = (odd != 0) & (at == j)
        put(m + FOUR_Q, j, v.select(change, instead, load_codes(m + FOUR_Q, j)))


@fn
def gains(m, x, w, factor, scale, levels):
    qx, qq = v.f32x16(0.0), v.f32x16(0.0)
    for k in range(8):
        load_four(m, x, w, k)
        find_four(m, factor, scale, levels)
        for j in range(4):
            q = level(levels, load_codes(m + FOUR_Q, j))
            wq = mul(load_lanes(m + FOUR_W, j), q)
            qx, qq = v.fma(wq, load_lanes(m + FOUR, j), qx), v.fma(wq, q, qq)
    return qx, qq


@fn
def find(m, x, w):
    top, one = extreme(x, 32), v.f32x16(1.0)
    zero = v.vabs(top) < ZERO
    top = v.select(zero, one, top)
    scale, best = -top / FIRST, v.f32x16(0.0)
    for i in range(-TRIES, TRIES + 1):
        for k in range(2):
            levels = v.table(LEVELS) + ROW * k
            factor = v.f32x16(v.float32(i) + v.ld_f32(levels)) / top
            for sign in range(2):
                used = factor if sign == 0 else -factor
                qx, qq = gains(m, x, w, used, one / factor, levels)
                better = (qq > 0.0) & (mul(qx, qx) > mul(best, qq))
                scale = v.select(better, qx / v.select(better, qq, one), scale)
                best = v.select(better, mul(scale, qx), best)
    return v.select(zero, v.f32x16(0.0), scale)


@fn
def search(m, found, largest):
    for g in range(8):
        scale = find(m, m + X + 32 * VECTOR * g, m + W + 32 * VECTOR * g)
        put(found, g, scale)
        largest = of_larger(scale, largest)
    return largest


@fn
def start(m, blocks, largest):
    return start_odd(largest)


@fn
def put_words(m, x, w, scale, levels, to):
    """Store the indices of a group as words and return the weighted sum of squared errors."""
    factor, loss = divide(v.f32x16(1.0), scale), v.f32x16(0.0)
    for k in range(8):
        load_four(m, x, w, k)
        find_four(m, factor, scale, levels)
        word = v.i32x16(0)
        for j in range(4):
            index = load_codes(m + FOUR_Q, j)
            word = word | (index << (4 * j))
            diff = v.fma(-scale, level(levels, index), load_lanes(m + FOUR, j))
            loss = v.fma(mul(load_lanes(m + FOUR_W, j), diff), diff, loss)
        put(to, k, word)
    return loss


@fn
def put_block(m, found, d):
    factor, qx, qq = divide(v.f32x16(1.0), d), load_lanes(m + SUMS, 0), load_lanes(m + SUMS, 1)
    plain, more = v.table(LEVELS), v.table(LEVELS) + ROW
    for g in range(8):
        x, w = m + X + 32 * VECTOR * g, m + W + 32 * VECTOR * g
        step = round_odd(factor, load_lanes(found, g))
        loss = put_words(m, x, w, mul(d, step), plain, m + WORDS)
        shifted = put_words(m, x, w, mul(d, step), more, m + OTHER_WORDS) < loss
        code = (v.to_i32(step) + 127) | v.select(shifted, v.i32x16(1), v.i32x16(0))
        for k in range(8):
            load_four(m, x, w, k)
            word = v.select(shifted, load_codes(m + OTHER_WORDS, k), load_codes(m + WORDS, k))
            for j in range(4):
                index = (word >> (4 * j)) & 15
                q = v.select(shifted, level(more, index), level(plain, index)) * step
                wq = mul(load_lanes(m + FOUR_W, j), q)
                qx, qq = v.fma(wq, load_lanes(m + FOUR, j), qx), v.fma(wq, q, qq)
            for j in range(4):
                word = word ^ (word << (1 << j))
            put_bytes(m, 16 * g + 2 * k, 2, (word << 1) | ((code >> k) & 1))
    put(m + SUMS, 0, qx)
    put(m + SUMS, 1, qq)
    clear(m, 128, d == 0.0)


@fn
def finish(m, d):
    qq = load_lanes(m + SUMS, 1)
    return fitted_scale(m, d) * v.select(qq > 0.0, v.f32x16(v.float32(1.01)), v.f32x16(1.0))


weights = weigh_groups(32, 2.0, 0.0)
rows = RowSteps(search, start, put_block, finish)
register("iq4_kss", weights.plain, weights.weighted, rows=rows)
