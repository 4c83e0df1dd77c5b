"""Online softmax of all rows of a tile in parallel, with weights as 16-bit integers.

A tile stores each number of a row's state in a vector with one lane per row, so that rows do not
wait for each other's horizontal sums and maxima. The states of a tile are the vectors below and the
address of each row's mask.
"""

from __future__ import annotations

from ggml_cpu import vocabulary as v
from ggml_cpu.blocks import integers16
from ggml_cpu.blocks.integers16 import TINY
from ggml_cpu.kernel import Function, fn
from ggml_cpu.kernels.attention._parts import (
    KEYS,
    TOP,
    TOTAL,
    Q,
    add_bias,
    finish_row,
    last_visible,
    mask_address,
    query_head,
)
from ggml_cpu.kernels.attention._sources import WORD
from ggml_cpu.kernels.attention.soft_max import MINUS_INFINITY, alibi_slope
from ggml_cpu.target import LANES, TILE, VNNI

TOPS, TOTALS, FACTORS, SLOPES, SCALES, MASKS = (i * WORD for i in range(6))
STATES = MASKS + 2 * WORD  # bytes of a tile's states
assert TILE <= LANES or not VNNI  # only kernels for VNNI use this module
SPARE = 3 * TILE * WORD  # scratch bytes of `weigh_tile`
MOST_SUM = 262000.0  # maximum sum of a row's integer weights, without rounding errors


def build_start_tile(rows: int) -> Function:
    """Return start_tile(p, pair, first, count, states) for tiles of `rows` rows."""

    @fn
    def start_tile(p, pair, first, count, states):
        """Initialize the states of a tile; the last row fills missing rows."""
        v.store(states + TOPS, v.f32(MINUS_INFINITY))
        v.store(states + TOTALS, v.f32(0.0))
        v.store(states + FACTORS, v.f32(0.0))
        for t in range(rows):
            row = first + min(t, count - 1)
            slope = alibi_slope(query_head(p, pair, row), v.ne(p, Q, 2), v.op_f32(p, 1))
            v.st_f32(states + SLOPES + 4 * t, slope)
            v.st_i64(states + MASKS + 8 * t, mask_address(p, pair, row))

    return start_tile


def build_keys_seen(rows: int) -> Function:
    """Return keys_seen(states, key, n) for tiles of `rows` rows."""

    @fn
    def keys_seen(states, key, n):
        """Return how many of n keys to process; the mask hides later keys from all rows."""
        seen, before = 0, -1
        for t in range(rows):
            mask = v.ld_i64(states + MASKS + 8 * t)
            if mask == 0:
                return n
            if mask != before and seen < n:
                seen = max(seen, last_visible(mask + 2 * key, n))
                v.prefetch(mask + 2 * (key + KEYS))
                v.prefetch(mask + 2 * (key + KEYS) + 64)
                before = mask
        return seen

    return keys_seen


start_tile, keys_seen = build_start_tile(TILE), build_keys_seen(TILE)


def build_finish(lane_address: Function, sums_address: Function, step: int) -> Function:
    """Return finish(p, local, pair, first, n_rows, part, parts), which stores the rows of a unit.

    Args:
        lane_address: lane_address(p, local, r) returns the address of row r's lane in the state
            vectors.
        sums_address: sums_address(p, local, r) returns the address of row r's sums.
        step: Bytes between the vectors of a row's sums.
    """

    @fn
    def finish(p, local, pair, first, n_rows, part, parts):
        state = local  # reuses the memory of the keys
        for r in range(n_rows):
            at = lane_address(p, local, r)
            v.st_f32(state + TOP, v.ld_f32(at + TOPS))
            v.st_f32(state + TOTAL, v.ld_f32(at + TOTALS))
            finish_row(p, pair, first + r, part, parts, state, sums_address(p, local, r), step)

    return finish


def build_join(join: Function, rows: int) -> Function:
    """Return across(at): reduce each of `rows` vectors at `at` to one lane with `join`."""

    def level(width: int) -> Function:
        """Return a function that reduces vectors t .. t + width to LANES / width lanes each."""
        if width == 1:

            @fn
            def one(at, t):
                return v.f32_load(at + WORD * min(t, rows - 1))

            return one
        half, count = level(width // 2), width // 2

        @fn
        def load_both(at, t):
            x, y = half(at, t), half(at, t + count)
            return join(v.evens(x, y), v.odds(x, y))

        return load_both

    all_of = level(LANES)

    @fn
    def across(at):
        return all_of(at, 0)

    return across


@fn
def larger(x, y):
    return v.vmax(x, y)


@fn
def plus(x, y):
    return y + x


maxima, sums = build_join(larger, TILE), build_join(plus, TILE)


@fn
def raise_tops(states, tops):
    """Update the rows' maxima; store and return the factors that rescale earlier weighted sums.

    Stores the maxima that are subtracted from scores (0 for -inf) at SCALES for now.
    """
    before = v.f32_load(states + TOPS)
    top = v.vmax(tops, before)
    base = v.select(top > MINUS_INFINITY, top, 0.0)
    factors = v.select(top > before, v.vexp(before - base), 1.0)
    v.store(states + TOPS, top)
    v.store(states + FACTORS, factors)
    v.store(states + SCALES, base)
    return factors


@fn
def weigh_tile(p, key, n, x, value_scales, states, integers, spare):
    """Turn scores x [TILE][KEYS] of n keys into integer weights; zeros fill the last vector.

    A weight is exp(score - maximum) times the scale of the value. Updates the states: maxima, sums
    of weights, factors that rescale earlier weighted sums, and scales (the weight of integer 1).
    """
    cap = v.op_f32(p, 2)
    for t in range(TILE):
        mask = v.ld_i64(states + MASKS + 8 * t)
        mask = mask + 2 * key if mask != 0 else 0
        top = add_bias(x + 4 * KEYS * t, n, mask, v.ld_f32(states + SLOPES + 4 * t), cap)
        v.store(spare + WORD * t, top)
    factors = raise_tops(states, maxima(spare))
    add_weights(n, x, value_scales, states + SCALES, spare)
    v.store(states + TOTALS, v.f32_load(states + TOTALS) * factors + sums(spare))
    scaled = sums(spare + TILE * WORD)
    scale = v.vmax(maxima(spare + 2 * TILE * WORD) * (1 / integers16.TOP), scaled * (1 / MOST_SUM))
    scale = v.select(scaled < TINY, 0.0, scale)
    inverses = v.select(scale > 0.0, 1.0 / scale, 0.0)
    v.store(spare, inverses)
    v.store(states + SCALES, v.select(scaled == scaled, scale, scaled))
    for t in range(TILE):
        factor = v.f32_bcast(spare + 4 * t)
        for i in range(0, n, LANES):
            w = v.f32_load(x + 4 * (KEYS * t + i)) * factor
            v.store(integers + 2 * (KEYS * t + i), v.to_i16(v.to_i32(v.vround(w))))


@fn
def add_weights(n, x, value_scales, bases, spare):
    """Turn the scores x of each row into weights times the values' scales.

    Stores three groups of TILE vectors in spare, with partial results per lane: sums of weights,
    sums of scaled weights, maxima of scaled weights.
    """
    for t in range(TILE):
        base = v.f32_bcast(bases + 4 * t)
        total, scaled, top = v.f32(0.0), v.f32(0.0), v.f32(0.0)
        for i in range(0, n, LANES):
            at = x + 4 * (KEYS * t + i)
            e = v.vexp(v.f32_load(at) - base)
            w = e * v.f32_load(value_scales + 4 * i)
            total, scaled, top = total + e, scaled + w, v.vmax(w, top)
            v.store(at, w)
        v.store(spare + WORD * t, total)
        v.store(spare + WORD * (TILE + t), scaled)
        v.store(spare + WORD * (2 * TILE + t), top)
