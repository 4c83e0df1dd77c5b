"""Search for the best scale of a group (ggml-quants.c:make_qx_quants, make_qkx2_quants, ...).

A group is one or two vectors of 16 values. The functions return scales only: callers quantize the
scales, then the values.
"""

from __future__ import annotations

from ggml_cpu import vocabulary as v
from ggml_cpu.blocks.levels import UNEVEN, nearest_uneven, uneven_levels
from ggml_cpu.blocks.rounding import TINY, max_value, min_value
from ggml_cpu.kernel import Function, fn

FIRST = float(UNEVEN[0])
MAGIC = 12582912.0  # 1.5 * 2^23: adding it to a f32 rounds off the fraction


@fn
def nearest(x):
    """Round each element to the nearest integer, halves to even."""
    return (x + MAGIC) - MAGIC


@fn
def round_and_clip(x, low, high):
    return v.vmin(v.vmax(nearest(x), low), high)


@fn
def levels_above(x, scale, minimum, q_max):
    """Return levels q in 0 .. q_max with x = scale * q - minimum."""
    if scale == 0.0:
        return v.i32x16(0)
    return v.to_i32(round_and_clip((x + minimum) / scale, 0.0, q_max))


@fn
def levels_around(x, scale, n_max):
    """Return levels q in 0 .. 2 * n_max - 1 with x = scale * (q - n_max)."""
    if scale == 0.0:
        return v.i32x16(0)
    return v.to_i32(round_and_clip(x / scale, -n_max, n_max - 1.0) + n_max)


@fn
def first_extreme(src, n, x, y):
    """Return the value of largest magnitude of n, the first of a tie; x and y are the values."""
    top = v.float32(max(max_value(x, y), -min_value(x, y)))
    for i in range(n):
        if abs(v.ld_f32(src + 4 * i)) == top:
            return v.ld_f32(src + 4 * i)
    return top


@fn
def find_level(x, factor, minimum, q_max):
    return max(v.float32(0.0), min(v.float32(q_max), v.float32(v.rintf(factor * (x - minimum)))))


@fn
def sum_errors(src, n, base, factor, minimum, scale, offset, q_max, absolute):
    """Return the weighted sum of squared or absolute errors of quantizing n values and back.

    q = factor * (x - minimum), rounded; x' = scale * q + offset; a value's weight is base + |x|.
    """
    total = v.float32(0.0)
    for i in range(n):
        x = v.ld_f32(src + 4 * i)
        diff = scale * find_level(x, factor, minimum, q_max) + offset - x
        total += (base + abs(x)) * (abs(diff) if absolute else diff * diff)
    return total


@fn
def fit_scale_and_offset(src, n, base, factor, minimum, q_max):
    """Return the least-squares (scale, offset) for the levels of n values; scale -1 if singular.

    Sums are sequential like ggml's, so near ties between scales have the same winner.
    """
    s_w, s_x, s_q = v.float32(0.0), v.float32(0.0), v.float32(0.0)
    s_qq, s_xq = v.float32(0.0), v.float32(0.0)
    for i in range(n):
        x = v.ld_f32(src + 4 * i)
        q, weight = find_level(x, factor, minimum, q_max), base + abs(x)
        s_w, s_x, s_q = s_w + weight, s_x + weight * x, s_q + weight * q
        s_qq, s_xq = s_qq + weight * q * q, s_xq + weight * q * x
    det = s_w * s_qq - s_q * s_q
    if det <= 0.0:
        return v.float32(-1.0), v.float32(0.0)
    scale, offset = (s_w * s_xq - s_x * s_q) / det, (s_qq * s_x - s_q * s_xq) / det
    if offset > 0.0:
        return s_xq / s_qq, v.float32(0.0)
    return scale, offset


@fn
def with_minimum(src, n, base, q_max, start, step, n_steps, absolute):
    """Return the best (scale, minimum) for x = scale * q - minimum, q in 0 .. q_max.

    Weights are base + |x|. The search tries n_steps + 1 scales, refits each by least squares, and
    selects the smallest error. Like in ggml, later tries start from the minimum of the best so far.
    """
    low, high = v.ld_f32(src), v.ld_f32(src)
    for i in range(1, n):
        low, high = min(low, v.ld_f32(src + 4 * i)), max(high, v.ld_f32(src + 4 * i))
    low = min(v.float32(0.0), low)
    scale, offset = v.float32(0.0), low
    if high != low:
        factor = v.float32(q_max) / (high - low)
        scale = v.float32(1.0) / factor
        least = sum_errors(src, n, base, factor, low, scale, low, q_max, absolute)
        for i in range(n_steps + 1):
            levels = v.float32(start) + v.float32(step) * v.float32(i) + v.float32(q_max)
            factor, minimum = levels / (high - offset), offset
            scale2, offset2 = fit_scale_and_offset(src, n, base, factor, minimum, q_max)
            if scale2 != -1.0:
                error = sum_errors(src, n, base, factor, minimum, scale2, offset2, q_max, absolute)
                if error < least:
                    least, scale, offset = error, scale2, offset2
    return scale, -offset


@fn
def symmetric(src, n_max):
    """Return the best of 19 scales for 16 values to -n_max .. n_max - 1, weights x^2."""
    x = v.f32x16_load(src)
    top, scale = first_extreme(src, 16, x, x), v.float32(0.0)
    if abs(top) >= TINY:
        best, weight = v.float32(0.0), x * x
        for i in range(19):
            step = 0 if i == 0 else (i - 10 if i < 10 else i - 9)
            factor = -(v.float32(n_max) + v.float32(0.1) * v.float32(step)) / top
            q = round_and_clip(x * factor, -n_max, n_max - 1.0)
            xq, qq = v.vsum(weight * x * q), v.vsum(weight * q * q)
            if qq > 0.0 and (i == 0 or xq * xq > best * qq):
                scale = xq / qq
                best = scale * xq
    return scale


@fn
def refine_scale(src, n_max, spare):
    """Return a scale like `symmetric`, but improve levels one at a time while the error decreases.

    spare: 16 bytes of scratch.
    """
    x = v.f32x16_load(src)
    top = first_extreme(src, 16, x, x)
    xq, qq = v.float32(0.0), v.float32(0.0)
    if abs(top) >= TINY:
        factor = v.float32(-n_max) / top
        for i in range(16):
            xi = v.ld_f32(src + 4 * i)
            q = max(-n_max, min(n_max - 1, int(v.rintf(factor * xi))))
            v.st_i8(spare + i, q)
            xq += xi * xi * xi * v.float32(q)
            qq += xi * xi * v.float32(q) * v.float32(q)
        for _ in range(5):
            changed = False
            for i in range(16):
                xi, old = v.ld_f32(src + 4 * i), v.float32(v.ld_i8(spare + i))
                weight = xi * xi
                rest_xq, rest_qq = xq - weight * xi * old, qq - weight * old * old
                if rest_xq > 0.0:
                    q = max(-n_max, min(n_max - 1, int(v.rintf(xi * rest_qq / rest_xq))))
                    new = v.float32(q)
                    new_xq, new_qq = rest_xq + weight * xi * new, rest_qq + weight * new * new
                    if new != old and new_qq > 0.0 and new_xq * new_xq * qq > xq * xq * new_qq:
                        v.st_i8(spare + i, q)
                        xq, qq, changed = new_xq, new_qq, True
            if not changed:
                break
    return xq / qq if qq > 0.0 else v.float32(0.0)


@fn
def gains(src, factor):
    """Return sums of x * level and level^2 of 32 values and uneven levels, weights x^2."""
    xq, qq = v.float32(0.0), v.float32(0.0)
    for part in range(2):
        x = v.f32x16_load(src + 64 * part)
        q = uneven_levels(nearest_uneven(x * factor))
        for i in range(16):
            xi, qi = v.lane(x, i), v.lane(q, i)
            xq += xi * xi * qi * xi
            qq += xi * xi * qi * qi
    return xq, qq


@fn
def uneven(src, n_try):
    """Return the best scale of 32 values for the uneven levels, from 2 * n_try + 2 starts."""
    x, y = v.f32x16_load(src), v.f32x16_load(src + 64)
    top, scale = first_extreme(src, 32, x, y), v.float32(0.0)
    if abs(top) >= TINY:
        best = v.float32(0.0)
        for i in range(2 * n_try + 2):
            factor = (v.float32(i - 1 - n_try) + v.float32(FIRST)) / top
            if i == 0:
                factor = v.float32(1.0) / (-top / v.float32(FIRST))
            xq, qq = gains(src, factor)
            if qq > 0.0 and (i == 0 or xq * xq > best * qq):
                scale = xq / qq
                best = scale * xq
    return scale


def largest_scale(find_scale: Function, groups: int) -> Function:
    """Return find_largest(x, spare): the scale of largest magnitude of the groups of 256 values.

    find_scale(x, spare) returns the scale of a group.
    """
    apart = 1024 // groups

    @fn
    def find_largest(x, spare):
        top = v.float32(0.0)
        for g in range(groups):
            scale = find_scale(x + apart * g, spare)
            if abs(scale) > abs(top):
                top = scale
        return top

    return find_largest


def scales_and_minima(
    find_group: Function, groups: int, most: float, factors_at: int, store: Function
) -> Function:
    """Return store_scales(x, block): quantize the scales and minima of the groups of 256 values.

    find_group(x) returns (scale, minimum) of a group. store_scales stores f16 d and d_min at
    `factors_at`, and calls store(block, g, scale, minimum) with the multiples of d and d_min of
    each group, 0 .. most.
    """
    apart = 1024 // groups

    @fn
    def store_scales(x, block):
        top, top_minimum = v.float32(0.0), v.float32(0.0)
        for g in range(groups):
            scale, minimum = find_group(x + apart * g)
            top, top_minimum = max(top, scale), max(top_minimum, minimum)
        v.st_f16(block + factors_at, top / v.float32(most))
        v.st_f16(block + factors_at + 2, top_minimum / v.float32(most))
        factor = v.float32(most) / top if top > 0.0 else v.float32(0.0)
        factor_minimum = v.float32(most) / top_minimum if top_minimum > 0.0 else v.float32(0.0)
        for g in range(groups):
            scale, minimum = find_group(x + apart * g)
            low, high = int(v.rintf(factor * scale)), int(v.rintf(factor_minimum * minimum))
            store(block, g, min(int(most), low), min(int(most), high))

    return store_scales
