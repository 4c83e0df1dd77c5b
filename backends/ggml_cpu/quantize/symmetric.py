"""Search for scales without minima (ggml-quants.c:make_qx_quants, make_q3_quants, make_qp_quants).

`positive_scale` quantizes scales and minima, the other searches values around zero.
"""

from __future__ import annotations

from ggml_cpu import vocabulary as v
from ggml_cpu.blocks.search import nearest
from ggml_cpu.kernel import Function, fn
from ggml_cpu.quantize.lanes import (
    add_steps,
    extreme,
    is_zero,
    load_lanes,
    mul,
    put,
    ratio,
    round_and_clip,
)


@fn
def gains(x, w, n, factor, n_max):
    """Return the sums of w * x * q and w * q * q, q the level of factor * x."""
    xq, qq = v.f32x16(0.0), v.f32x16(0.0)
    for i in range(n):
        q, weight = (
            round_and_clip(mul(factor, load_lanes(x, i)), -n_max, n_max - 1.0),
            load_lanes(w, i),
        )
        xq = xq + mul(mul(weight, load_lanes(x, i)), q)
        qq = qq + mul(mul(weight, q), q)
    return xq, qq


@fn
def best_scale(x, w, n, n_max, levels):
    """Return the best of 19 scales for n values; store their levels 0 .. 2 * n_max - 1."""
    top = extreme(x, n)
    zero = is_zero(top)
    top = v.select(zero, v.f32x16(1.0), top)
    factor = v.f32x16(-n_max) / top
    xq, qq = gains(x, w, n, factor, n_max)
    scale = v.select(qq == 0.0, v.f32x16(0.0), xq / v.select(qq == 0.0, v.f32x16(1.0), qq))
    best = mul(scale, xq)
    for step in range(-9, 10):
        if step != 0:
            tried = v.f32x16(-add_steps(n_max, 0.1, step)) / top
            xq, qq = gains(x, w, n, tried, n_max)
            better = (qq > 0.0) & (mul(xq, xq) > mul(best, qq))
            factor = v.select(better, tried, factor)
            scale = v.select(better, xq / v.select(better, qq, v.f32x16(1.0)), scale)
            best = v.select(better, mul(scale, xq), best)
    for i in range(n):
        q = round_and_clip(mul(factor, load_lanes(x, i)), -n_max, n_max - 1.0) + n_max
        put(levels, i, v.select(zero, v.f32x16(0.0), q))
    return v.select(zero, v.f32x16(0.0), scale)


def _mover(can_do_without: Function, limited: Function, kept: Function) -> Function:
    """Return move_levels(x, w, n, limit, levels, xq, qq): improve levels, update the sums.

    It makes up to five passes and stops when no level changes.

    can_do_without  can_do_without(xq, qq): True if the sums of the other levels define a best level
    limited         limited(level, limit): round and clip a level
    kept            kept(level): value to store for a level
    """

    @fn
    def move_levels(x, w, n, limit, levels, xq, qq):
        for _ in range(5):
            changed = v.f32x16(0.0) > 1.0
            for i in range(n):
                xi, weight, q = load_lanes(x, i), load_lanes(w, i), load_lanes(levels, i)
                wx = mul(weight, xi)
                less_xq, less_qq = xq - mul(wx, q), qq - mul(mul(weight, q), q)
                usable = can_do_without(less_xq, less_qq)
                new = mul(xi, less_qq) / v.select(usable, less_xq, v.f32x16(1.0))
                new = limited(new, limit)
                new_xq, new_qq = less_xq + mul(wx, new), less_qq + mul(mul(weight, new), new)
                better = usable & (new != q) & (new_qq > 0.0)
                better = better & (mul(mul(new_xq, new_xq), qq) > mul(mul(xq, xq), new_qq))
                put(levels, i, v.select(better, kept(new), q))
                xq, qq = v.select(better, new_xq, xq), v.select(better, new_qq, qq)
                changed = changed | better
            if not v.vany(changed):
                break
        return xq, qq

    return move_levels


@fn
def xq_is_positive(xq, qq):
    return xq > 0.0


@fn
def both_are_positive(xq, qq):
    return (xq > 0.0) & (qq > 0.0)


@fn
def on_both_sides(level, n_max):
    return round_and_clip(level, -n_max, n_max - 1.0)


@fn
def from_above(level, q_max):
    return v.vmin(nearest(level), q_max)


@fn
def as_it_is(level):
    return level


@fn
def as_byte(q):
    """Return the level after ggml's conversion to u8, which adds 256 to negative levels."""
    return v.select(q < 0.0, q + 256.0, q)


move_levels = _mover(xq_is_positive, on_both_sides, as_it_is)
move_levels_up = _mover(both_are_positive, from_above, as_byte)


@fn
def moved_scale(x, w, n, n_max, levels):
    """Return the scale of n values and store levels 0 .. 2 * n_max - 1 of `move_levels`."""
    top = extreme(x, n)
    zero = is_zero(top)
    factor = v.f32x16(-n_max) / v.select(zero, v.f32x16(1.0), top)
    xq, qq = gains(x, w, n, factor, n_max)
    for i in range(n):
        put(levels, i, round_and_clip(mul(factor, load_lanes(x, i)), -n_max, n_max - 1.0))
    xq, qq = move_levels(x, w, n, n_max, levels, xq, qq)
    for i in range(n):
        put(levels, i, v.select(zero, v.f32x16(0.0), load_lanes(levels, i) + n_max))
    return v.select(zero, v.f32x16(0.0), ratio(xq, qq))


@fn
def factor_of_least_error(x, w, n, q_max, top):
    factor = v.f32x16(q_max) / top
    least = v.f32x16(0.0)
    for step in range(-5, 5):  # -5: the initial factor, without an upper bound of levels
        tried = factor
        if step > -5:
            tried = v.f32x16(add_steps(0.0, 0.1, step) + v.float32(q_max)) / top
        scale, error = v.f32x16(1.0) / tried, v.f32x16(0.0)
        for i in range(n):
            q = nearest(mul(tried, load_lanes(x, i)))
            q = v.vmin(q, q_max) if step > -5 else as_byte(q)
            diff = load_lanes(x, i) - mul(scale, q)
            error = error + mul(mul(load_lanes(w, i), diff), diff)
        if step == -5:
            least = error
        elif step != 0:
            better = error < least
            least, factor = v.select(better, error, least), v.select(better, tried, factor)
    return factor


@fn
def positive_scale(x, w, n, q_max, levels):
    """Return the scale of n non-negative values and store their levels 0 .. q_max."""
    top = v.f32x16(0.0)
    for i in range(n):
        top = v.vmax(top, load_lanes(x, i))
    zero = top < 1e-15
    top = v.select(zero, v.f32x16(1.0), top)
    factor = factor_of_least_error(x, w, n, q_max, top)
    xq, qq = v.f32x16(0.0), v.f32x16(0.0)
    for i in range(n):
        q, weight = v.vmin(nearest(mul(factor, load_lanes(x, i))), q_max), load_lanes(w, i)
        put(levels, i, as_byte(q))
        xq = xq + mul(mul(weight, load_lanes(x, i)), q)
        qq = qq + mul(mul(weight, q), q)
    xq, qq = move_levels_up(x, w, n, q_max, levels, xq, qq)
    for i in range(n):
        put(levels, i, v.select(zero, v.f32x16(0.0), load_lanes(levels, i)))
    return v.select(zero, v.f32x16(0.0), ratio(xq, qq))
