"""Quantization to uneven levels that groups may use shifted (iqk_quantize.cpp of ik_llama.cpp).

ik_llama.cpp is compiled with fused multiply-adds, so sums use them here. Importance that is nearly
zero for a whole group counts as equal for its values (QHelper there).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ggml_cpu import vocabulary as v
from ggml_cpu.blocks.ik_levels import LEVELS as LEVELS_OF
from ggml_cpu.blocks.search import nearest
from ggml_cpu.kernel import Function, fn
from ggml_cpu.quantize.format import RowSteps
from ggml_cpu.quantize.lanes import (
    BYTES,
    LANES,
    LEVELS,
    MINIMA,
    SCALES,
    STEPS,
    SUMS,
    VECTOR,
    W,
    X,
    add_steps,
    divide,
    extreme,
    load_integers,
    load_lanes,
    mul,
    put,
    put_byte,
    put_bytes,
    put_half,
    sum_of_squares,
)
from ggml_cpu.quantize.steps import put_nibbles, put_quarters

SMALL = np.float32(1e-9) * np.float32(1e-9)  # mean square of importance or values that counts as 0
ZERO = 1e-16  # largest magnitude of a group of zeros
SHIFTS = MINIMA  # tile: 1 for groups with shifted levels


@dataclass(frozen=True)
class LevelSearch:
    """Functions (`@fn`) that quantize groups of n values.

    find        find(m, x, w): scale and shift (0 or 1) of a group
    put_levels  put_levels(x, w, to, factor, step, shift, qx, qq): store the indices of the levels
                of factor * x; return qx and qq plus the sums of w * q * x and w * q * q, q the
                level times step
    keeps_zeros  True if levels of groups with scale 0 are 0, not the level next to 0
    """

    find: Function
    put_levels: Function
    keeps_zeros: bool


def shifted_table(bits: int) -> tuple[bytes, int, float]:
    """Return the levels and the shifted levels as f32, the bytes of a row, and the first level."""
    values, more = LEVELS_OF[bits]
    table = np.array([values, [x + more for x in values]], np.float32)
    return table.tobytes(), 4 * len(values), float(values[0])


def build_lookup(bits: int) -> tuple[Function, Function]:
    """Return find_level(x, levels) and find_index(x, levels) for a row of levels."""
    count = len(LEVELS_OF[bits][0])

    @fn
    def find_level(x, levels):
        """Return the level nearest to x, the upper one in a tie."""
        level = v.f32x16(v.ld_f32(levels))
        for i in range(count - 1):
            low, high = v.ld_f32(levels + 4 * i), v.ld_f32(levels + 4 * i + 4)
            level = v.select((x - low) < (high - x), level, v.f32x16(high))
        return level

    @fn
    def find_index(x, levels):
        index = v.f32x16(0.0)
        for i in range(count - 1):
            low, high = v.ld_f32(levels + 4 * i), v.ld_f32(levels + 4 * i + 4)
            index = index + v.select((x - low) < (high - x), v.f32x16(0.0), v.f32x16(1.0))
        return index

    return find_level, find_index


def build_search(
    bits: int, n: int, tries: int, refits: bool, in_pairs: bool = False, stride: float = 1.0
) -> LevelSearch:
    """Return the LevelSearch for groups of n values and indices of `bits` bits.

    tries     number of scales above and below the first that are tried
    refits    True if the best scale is fitted again to its levels
    stride    distance of their largest levels
    in_pairs  True if put_levels adds the products of values i and i + n / 2 together
    """
    table, row, first = shifted_table(bits)
    find_level, find_index = build_lookup(bits)

    @fn
    def gains(x, w, factor, levels):
        """Return the sums of w * q * x and w * q * q, q the level of factor * x."""
        qx, qq = v.f32x16(0.0), v.f32x16(0.0)
        for i in range(n):
            q = find_level(mul(factor, load_lanes(x, i)), levels)
            wq = mul(load_lanes(w, i), q)
            qx, qq = v.fma(wq, load_lanes(x, i), qx), v.fma(wq, q, qq)
        return qx, qq

    @fn
    def find(m, x, w):
        levels = v.table(table)
        top = extreme(x, n)
        zero = v.vabs(top) < ZERO
        top = v.select(zero, v.f32x16(1.0), top)
        factor = v.f32x16(1.0) / (-top / first)
        qx, qq = gains(x, w, factor, levels)
        scale = qx / qq
        best, shift = mul(scale, qx), v.f32x16(0.0)
        qx, qq = gains(x, w, -factor, levels)
        better = (qq > 0.0) & (mul(qx, qx) > mul(best, qq))
        scale = v.select(better, qx / qq, scale)
        best = v.select(better, mul(scale, qx), best)
        for i in range(-tries, tries + 1):
            for k in range(2):
                at = levels + row * k
                factor = v.f32x16(add_steps(v.ld_f32(at), stride, i)) / top
                for sign in range(2):
                    factor = factor if sign == 0 else -factor
                    qx, qq = gains(x, w, factor, at)
                    better = (qq > 0.0) & (mul(qx, qx) > mul(best, qq))
                    scale = v.select(better, qx / qq, scale)
                    best = v.select(better, mul(scale, qx), best)
                    shift = v.select(better, v.f32x16(v.float32(k)), shift)
        if refits:
            scale = refit(x, w, scale, shift)
        return v.select(zero, v.f32x16(0.0), scale), v.select(zero, v.f32x16(0.0), shift)

    @fn
    def refit(x, w, scale, shift):
        factor, levels = divide(v.f32x16(1.0), scale), v.table(table)
        qx, qq = gains(x, w, factor, levels)
        other_qx, other_qq = gains(x, w, factor, levels + row)
        qx = v.select(shift > 0.0, other_qx, qx)
        qq = v.select(shift > 0.0, other_qq, qq)
        return v.select((scale != 0.0) & (qq > 0.0), qx / qq, scale)

    @fn
    def put_level(x, to, i, factor, step, shift):
        """Store index i; return its level times step."""
        levels, shifted = v.table(table), shift > 0.0
        scaled = mul(factor, load_lanes(x, i))
        index = v.select(shifted, find_index(scaled, levels + row), find_index(scaled, levels))
        put(to, i, index)
        return (
            v.select(shifted, find_level(scaled, levels + row), find_level(scaled, levels)) * step
        )

    @fn
    def put_levels(x, w, to, factor, step, shift, qx, qq):
        for i in range(n // 2 if in_pairs else n):
            q = put_level(x, to, i, factor, step, shift)
            wq = mul(load_lanes(w, i), q)
            if in_pairs:
                j = i + n // 2
                r = put_level(x, to, j, factor, step, shift)
                wr = mul(load_lanes(w, j), r)
                qx = qx + v.fma(wq, load_lanes(x, i), mul(wr, load_lanes(x, j)))
                qq = qq + v.fma(wq, q, mul(wr, r))
            else:
                qx, qq = v.fma(wq, load_lanes(x, i), qx), v.fma(wq, q, qq)
        return qx, qq

    return LevelSearch(find, put_levels, refits)


@dataclass(frozen=True)
class GroupWeights:
    """Functions (`@fn`), plain(m) and weighted(m), that set the weights W of the values X."""

    plain: Function
    weighted: Function


def weigh_groups(n: int, times: float, share: float) -> GroupWeights:
    """Return the weights for groups of n values.

    sigma2 is `times` the mean square. Plain weights are x^2 + share * sigma2, others are importance
    times the root of x^2 + sigma2. ik_llama.cpp's vectors of squares are not fused with their sum.
    """

    @fn
    def mean_square(m):
        return sum_of_squares(m + X, 256) * times * (1.0 / 256.0)

    @fn
    def weigh_plain(m):
        base = mean_square(m) * share
        for i in range(256):
            x = load_lanes(m + X, i)
            put(m + W, i, mul(x, x) + base)

    @fn
    def weigh_importance(m):
        sigma = mean_square(m)
        for g in range(256 // n):
            x, w = m + X + VECTOR * n * g, m + W + VECTOR * n * g
            ww, xx, wx = v.f32x16(0.0), v.f32x16(0.0), v.f32x16(0.0)
            for i in range(n):
                a, b = load_lanes(w, i), load_lanes(x, i)
                ww, xx, wx = v.fma(a, a, ww), v.fma(b, b, xx), v.fma(a, v.vabs(b), wx)
            least = v.float32(n) * v.float32(SMALL)
            usable = (ww > least) & (xx > least) & (wx > least)
            for i in range(n):
                a, b = v.select(usable, load_lanes(w, i), v.f32x16(1e-9)), load_lanes(x, i)
                put(w, i, mul(a, v.vsqrt(v.fma(b, b, sigma))))

    return GroupWeights(weigh_plain, weigh_importance)


@fn
def put_shift_bits(m, at, groups):
    """Store one bit of each group in groups / 8 bytes."""
    bits = v.i32x16(0)
    for g in range(groups):
        bits = bits | (load_integers(m + SHIFTS, g) << g)
    put_bytes(m, at, groups // 8, bits)


@fn
def put_codes(m, upper, lower):
    """Store steps plus 32: two bits each in four bytes, and nibbles in eight bytes."""
    for k in range(4):
        bits = v.i32x16(0)
        for i in range(4):
            bits = bits | (((load_integers(m + STEPS, 4 * k + i) + 32) >> 4) << (2 * i))
        put_byte(m, upper + k, bits)
    for k in range(8):
        low = (load_integers(m + STEPS, 2 * k) + 32) & 15
        put_byte(m, lower + k, low | (((load_integers(m + STEPS, 2 * k + 1) + 32) & 15) << 4))


@fn
def put_fives(m, at):
    """Store 256 indices of five bits: nibbles, each row of 32 bytes with two groups; fifth bits."""
    for k in range(4):
        put_nibbles(m, at + 32 * k, 32, m + LEVELS + 64 * VECTOR * k)
    for i in range(32):
        bits = v.i32x16(0)
        for g in range(8):
            bits = bits | ((load_integers(m + LEVELS, 32 * g + i) >> 4) << g)
        put_byte(m, at + 128 + i, bits)


@fn
def put_thirds(m, at):
    """Store 256 indices of three bits: two bits as in `put_quarters`; third bits."""
    put_quarters(m, at)
    for i in range(32):
        bits = v.i32x16(0)
        for g in range(8):
            bits = bits | ((load_integers(m + LEVELS, 32 * g + i) >> 2) << g)
        put_byte(m, at + 64 + i, bits)


@fn
def clear(m, size, mask):
    """Set the blocks of lanes to zero."""
    for i in range(size):
        q = v.zext_i32(v.i8x16_load(m + BYTES + LANES * i))
        put_byte(m, i, v.select(mask, v.i32x16(0), q))


@dataclass(frozen=True)
class ScaleSteps:
    """Functions (`@fn`) for the scales of a block.

    start   start(m): d of the 16 scales of the tile SCALES
    round   round(factor, scale): step of a scale, factor being 1 / d
    finish  finish(fitted): the stored d
    """

    start: Function
    round: Function
    finish: Function


@fn
def keep(d):
    return d


def signed_steps(most: int) -> ScaleSteps:
    """Return steps -most .. most (31 for 32), -most for the scale of largest magnitude."""
    low, high = -float(most), 31.0 if most == 32 else float(most)

    @fn
    def start(m):
        return -extreme(m + SCALES, 16) / v.float32(most)

    @fn
    def round(factor, scale):
        return v.vmin(v.vmax(nearest(mul(factor, scale)), low), high)

    return ScaleSteps(start, round, keep)


def quantize_blocks(
    search: LevelSearch, weights: GroupWeights, steps: ScaleSteps, put_block: Function, size: int
) -> tuple[Function, Function]:
    """Return (encode_plain, encode_weighted) for 16 groups of 16 values.

    put_block  put_block(m): store all but d from the tiles LEVELS, STEPS and SHIFTS
    size       bytes of a block
    """
    find, put_levels = search.find, search.put_levels
    start, round, finish = steps.start, steps.round, steps.finish
    keeps_zeros = search.keeps_zeros

    @fn
    def encode(m):
        for g in range(16):
            scale, shift = find(m, m + X + 16 * VECTOR * g, m + W + 16 * VECTOR * g)
            put(m + SCALES, g, scale)
            put(m + SHIFTS, g, shift)
        d = start(m)
        factor = divide(v.f32x16(1.0), d)
        qx, qq = v.f32x16(0.0), v.f32x16(0.0)
        for g in range(16):
            at = 16 * VECTOR * g
            step = round(factor, load_lanes(m + SCALES, g))
            put(m + STEPS, g, step)
            scale = mul(d, step)
            shift, inverse = load_lanes(m + SHIFTS, g), divide(v.f32x16(1.0), scale)
            x, w, to = m + X + at, m + W + at, m + LEVELS + at
            qx, qq = put_levels(x, w, to, inverse, step, shift, qx, qq)
            if keeps_zeros:
                for i in range(16):
                    put(to, i, v.select(scale == 0.0, v.f32x16(0.0), load_lanes(to, i)))
        put_half(m, 0, finish(v.select(qq > 0.0, qx / qq, d)))
        put_block(m)
        if keeps_zeros:
            clear(m, size, d == 0.0)

    weigh_plain, weigh_importance = weights.plain, weights.weighted

    @fn
    def encode_plain(m):
        weigh_plain(m)
        encode(m)

    @fn
    def encode_weighted(m):
        weigh_importance(m)
        encode(m)

    return encode_plain, encode_weighted


@fn
def fitted_scale(m, d):
    """Return the scale of a row fitted to its levels, from the first two SUMS."""
    qx, qq = load_lanes(m + SUMS, 0), load_lanes(m + SUMS, 1)
    some = (d != 0.0) & (qq > 0.0)
    return v.select(some, qx / v.select(some, qq, v.f32x16(1.0)), d)


@dataclass(frozen=True)
class GroupSteps:
    """Functions (`@fn`) for the scales of the groups of 32 values of rows with one scale.

    start   start(largest): scale of the row
    round   round(factor, scale): step of a scale, factor being 1 / (scale of the row)
    finish  finish(fitted): the stored scale
    """

    start: Function
    round: Function
    finish: Function = keep


@fn
def of_larger(scale, largest):
    return v.select(v.vabs(scale) > v.vabs(largest), scale, largest)


def quantize_rows(
    search_32: LevelSearch, steps: GroupSteps, put_codes: Function, size: int, head: int = 4
) -> tuple[Function, Function, RowSteps]:
    """Return the functions of a type with one scale per row and groups of 32 values.

    put_codes(m)  stores a block from the tiles LEVELS, STEPS and SHIFTS
    size          its bytes
    """
    find, put_levels = search_32.find, search_32.put_levels
    first_scale, round, last_scale = steps.start, steps.round, steps.finish

    @fn
    def search(m, found, largest):
        for g in range(8):
            scale, shift = find(m, m + X + 32 * VECTOR * g, m + W + 32 * VECTOR * g)
            put(found, g, scale)
            put(found, 8 + g, shift)
            largest = of_larger(scale, largest)
        return largest

    @fn
    def start(m, blocks, largest):
        return first_scale(largest)

    @fn
    def put_block(m, found, d):
        factor = divide(v.f32x16(1.0), d)
        qx, qq = load_lanes(m + SUMS, 0), load_lanes(m + SUMS, 1)
        for g in range(8):
            at = 32 * VECTOR * g
            step, shift = round(factor, load_lanes(found, g)), load_lanes(found, 8 + g)
            put(m + STEPS, g, step)
            put(m + SHIFTS, g, shift)
            x, w, to = m + X + at, m + W + at, m + LEVELS + at
            inverse = divide(v.f32x16(1.0), mul(d, step))
            qx, qq = put_levels(x, w, to, inverse, step, shift, qx, qq)
        put_codes(m)
        clear(m, size, d == 0.0)
        put(m + SUMS, 0, qx)
        put(m + SUMS, 1, qq)

    @fn
    def finish(m, d):
        return last_scale(fitted_scale(m, d))

    weights = weigh_groups(32, 2.0, 0.0)
    return weights.plain, weights.weighted, RowSteps(search, start, put_block, finish, head)


@fn
def start_odd(largest):
    return v.vabs(largest) / v.float32(127.0)


@fn
def round_odd(factor, scale):
    """Return an odd step, -127 to 127."""
    step = nearest(v.fma(factor, scale, 127.0) * 0.5)
    return v.vmin(v.vmax(step, 0.0), 127.0) * 2.0 - 127.0


ODD = GroupSteps(start_odd, round_odd)


@fn
def put_odd_codes(m):
    """Store eight bytes: the step plus 127, and the shift in bit 0."""
    for g in range(8):
        step, shift = load_integers(m + STEPS, g), load_integers(m + SHIFTS, g)
        put_byte(m, g, step + 127 + shift)
