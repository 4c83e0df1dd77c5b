"""FLASH_ATTN_EXT for many tokens and keys with AMX-INT8: tiles of 2 * ROWS query rows x KEYS keys.

Each row of queries, keys and values, and a row's weights for KEYS keys, is quantized to 16-bit
integers with its scale. An integer is split into a high and a low byte, both signed. The product of
two low bytes is skipped: it is 2^-16 of the whole. Weights are multiplied by the scales of values
before they are quantized, so masked values have no effect. A value that is not finite makes the
sums of rows NaN if the mask does not hide it from the row. If there is a mask, a unit with such
rows is recomputed in f32, like all units with less than MIN_KEYS keys. On CPUs with AMX this kernel
replaces flash_integers.py.
"""

from __future__ import annotations

from ggml_cpu import vocabulary as v
from ggml_cpu.blocks import amx
from ggml_cpu.blocks.amx import A_NEXT, B_NEXT, C_NEXT, D_NEXT, LINE, ROWS, WORDS, A, B, C, D
from ggml_cpu.blocks.integers16 import TINY, inverse, load_f32_n, row_scale
from ggml_cpu.kernel import Function, fn, kernel
from ggml_cpu.kernels._common import pad_to_lanes
from ggml_cpu.kernels.attention._byte_rows import (
    ANY_BROKEN,
    BOTH,
    BROKEN,
    MOST,
    OF_VALUES,
    PART,
    STEP,
    TOPS_BYTES,
    count_steps,
    integers,
    loading,
    splitting,
    two_bytes,
)
from ggml_cpu.kernels.attention._parts import (
    KEYS,
    K,
    Q,
    V,
    flash_start,
    mask_scores,
    query_address,
    refusal,
    scores_scale,
)
from ggml_cpu.kernels.attention._sources import SOURCES, WORD, Source
from ggml_cpu.kernels.attention._tile_weights import (
    FACTORS,
    MASKS,
    SCALES,
    SLOPES,
    STATES,
    TOTALS,
    build_finish,
    build_join,
    build_keys_seen,
    build_start_tile,
    larger,
    plus,
    raise_tops,
)
from ggml_cpu.kernels.attention.flash_integers import MIN_KEYS
from ggml_cpu.kernels.attention.flash_tiles import (
    build_unit,
    extra,
    scratch_size,
    spoilt_among,
    taking_units,
    unit_shape,
)
from ggml_cpu.kernels.attention.soft_max import MINUS_INFINITY
from ggml_cpu.target import AMX, LANES
from ggml_py.tensor import Tensor

TILE = 2 * ROWS
MIN_TILES, MAX_TILES = 2, 32  # tiles per unit
UNIT_BYTES = 1 << 20  # maximum bytes of a unit's queries and sums, to fit the L2 cache
HIGH = 256.0  # weight of a high byte
COLUMNS = 2 * LANES  # columns of values multiplied at a time
SCORES = 4 * KEYS  # bytes of a row of scores
CROSS = TILE * SCORES  # bytes from high * high products to the cross products (high * low)

start_rows, keys_seen = build_start_tile(ROWS), build_keys_seen(ROWS)
maxima, totals = build_join(larger, ROWS), build_join(plus, ROWS)


@fn
def local_offsets(d: int, dv: int) -> tuple[int, int, int, int, int, int]:
    """Return offsets in local scratch; keys are first, at offset 0.

    The offsets are: values, scales, scores, weights, spare rows, tiles of a unit. The scales are
    the scales of keys, the scales of values, then one number per value (0, or NaN if the value is
    not finite) and the sum of the numbers.
    """
    values = KEYS // LANES * count_steps(d) * BOTH
    scales = values + dv // LANES * BOTH
    scores = scales + ANY_BROKEN + LINE
    weights = scores + 2 * CROSS
    spare = weights + 2 * BOTH
    spare_bytes = max(2 * BOTH, TOPS_BYTES + 4 * KEYS * pad_to_lanes(max(d, dv)))
    return values, scales, scores, weights, spare, spare + spare_bytes


@fn
def queries_offset(dv: int) -> int:
    """Return the offset of the queries in a tile, after two states (of ROWS rows) and the sums."""
    return 2 * STATES + TILE * 4 * dv


@fn
def scales_offset(d: int, dv: int) -> int:
    """Return the offset of the scales of queries in a tile."""
    return queries_offset(dv) + 2 * count_steps(d) * BOTH


@fn
def tile_bytes(d: int, dv: int) -> int:
    return scales_offset(d, dv) + 4 * TILE


@fn
def most_tiles(d: int, dv: int) -> int:
    """Return the maximum tiles per unit that fit the cache."""
    return max(MIN_TILES, min(MAX_TILES, UNIT_BYTES // tile_bytes(d, dv)))


def scratch(node: Tensor, nth: int) -> tuple[int, int]:
    d, dv = node.source(0).ne[0], node.source(2).ne[0]
    most = most_tiles(d, dv)
    shared, in_f32 = scratch_size(node, most, nth, TILE)
    tiles, _ = unit_shape(node, most, nth, TILE)
    return shared, max(in_f32, local_offsets(d, dv)[5] + tiles * tile_bytes(d, dv))


@fn
def tile_address(p, local, r):
    """Return the address of the tile of row r of a unit."""
    d, dv = v.ne(p, Q, 0), v.ne(p, V, 0)
    return local + local_offsets(d, dv)[5] + r // TILE * tile_bytes(d, dv)


@fn
def sums_address(p, local, r):
    """Return the address of the sums of row r of a unit."""
    return tile_address(p, local, r) + 2 * STATES + r % TILE * 4 * v.ne(p, V, 0)


@fn
def lane_address(p, local, r):
    """Return the address of the lane of row r of a unit in the state vectors."""
    return tile_address(p, local, r) + r % TILE // ROWS * STATES + 4 * (r % ROWS)


query_scale, query_step = row_scale(load_f32_n, 4, MOST), splitting(load_f32_n, 4)


@fn
def load_tile(p, pair, first, count, to, scales, spare):
    """Quantize a tile's scaled queries; the last query fills missing rows."""
    d, scale = v.ne(p, Q, 0), scores_scale(p)
    for t in range(TILE):
        at = query_address(p, pair, first + min(t, count - 1))
        for i in range(0, d, LANES):
            v.store(spare + 4 * i, v.f32_load_n(at + 4 * i, d - i) * scale)
        one = query_scale(spare, d)
        v.st_f32(scales + 4 * t, one)
        row = to + t // ROWS * count_steps(d) * BOTH + t % ROWS * LINE
        for s in range(count_steps(d)):
            high, low = query_step(spare + 4 * STEP * s, d - STEP * s, inverse(one))
            v.store(row + s * BOTH, high)
            v.store(row + s * BOTH + PART, low)


@fn
def load(register, at):
    v.amx_load(register, at, LINE, ROWS, WORDS)


@fn
def multiply_keys(keys, q, steps, n, products):
    """Compute products of a tile's rows and n keys, i32 [TILE][KEYS].

    High * high products are stored at `products`, the sums of both cross products CROSS bytes
    later. Loads and dot products alternate, because only then they overlap.
    """
    second = q + steps * BOTH
    for key in range(0, n, LANES):
        v.amx_zero(C)
        v.amx_zero(C_NEXT)
        v.amx_zero(D)
        v.amx_zero(D_NEXT)
        at = 0
        for _ in range(steps):
            load(B, keys)
            load(A, q + at)
            v.amx_dot_bytes(C, A, B)
            load(A_NEXT, second + at)
            v.amx_dot_bytes(D, A_NEXT, B)
            load(B_NEXT, q + at + PART)
            v.amx_dot_bytes(C_NEXT, B_NEXT, B)
            load(B_NEXT, second + at + PART)
            v.amx_dot_bytes(D_NEXT, B_NEXT, B)
            load(B, keys + PART)
            v.amx_dot_bytes(C_NEXT, A, B)
            v.amx_dot_bytes(D_NEXT, A_NEXT, B)
            at += BOTH
            keys += BOTH
        to = products + 4 * key
        v.amx_store(C, to, SCORES, ROWS, WORDS)
        v.amx_store(C_NEXT, to + CROSS, SCORES, ROWS, WORDS)
        v.amx_store(D, to + ROWS * SCORES, SCORES, ROWS, WORDS)
        v.amx_store(D_NEXT, to + ROWS * SCORES + CROSS, SCORES, ROWS, WORDS)


@fn
def combine_products(at, apart):
    """Return integer products / HIGH: HIGH * (high * high) + cross products `apart` bytes later."""
    return v.fma(v.to_f32(v.i32_load(at)), HIGH, v.to_f32(v.i32_load(at + apart)))


@fn
def hides_nothing(mask):
    """Return True if mask is 0 (no mask) or the next KEYS mask values are 0."""
    return mask == 0 or not v.vany((v.i32_load(mask) | v.i32_load(mask + WORD)) != 0)


@fn
def score_rows(p, key, n, x, scales, query_scales, states, spare):
    """Turn products of ROWS rows and n keys into biased scores; store lane maxima in spare."""
    cap = v.op_f32(p, 2)
    for t in range(ROWS):
        mask = v.ld_i64(states + MASKS + 8 * t)
        mask = mask + 2 * key if mask != 0 else 0
        slope, one = v.ld_f32(states + SLOPES + 4 * t), v.f32_bcast(query_scales + 4 * t) * HIGH
        top = v.f32(MINUS_INFINITY)
        if n == KEYS and cap == 0.0 and hides_nothing(mask):
            for i in range(0, KEYS, LANES):
                at = x + SCORES * t + 4 * i
                s = combine_products(at, CROSS) * (v.f32_load(scales + 4 * i) * one)
                v.store(at, s)
                top = v.vmax(s, top)
        else:
            for i in range(0, n, LANES):
                at = x + SCORES * t + 4 * i
                s = combine_products(at, CROSS) * (v.f32_load(scales + 4 * i) * one)
                s = mask_scores(s, i, n, mask, slope, cap)
                v.store(at, s)
                top = v.vmax(s, top)
        v.store(spare + WORD * t, top)


@fn
def weight(x, i, n, factor):
    """Return weights i .. i + LANES of n as integers, 0 if i >= n."""
    if i < n:
        return integers(v.f32_load(x + 4 * i), factor)
    return v.i32(0)


@fn
def see_broken(n, x, scales, to):
    """Store NaN for each of ROWS rows that attends to a value that is not finite, else 0.

    x: n scores per row, -inf for masked keys.
    """
    for t in range(ROWS):
        found = v.f32(0.0)
        for i in range(0, n, LANES):
            hidden = v.f32_load(x + SCORES * t + 4 * i) == MINUS_INFINITY
            found = found + v.select(hidden, 0.0, v.f32_load(scales + BROKEN + 4 * i))
        v.st_f32(to + 4 * t, v.float32(v.vsum(found)))


@fn
def weigh_rows(n, x, scales, states, weights, spare):
    """Turn n scores of each of ROWS rows at x into weights as high and low bytes.

    A weight is exp(score - maximum) times the scale of the value; spare holds the rows' lane
    maxima. Updates the states: maxima, sums of weights, factors that rescale earlier weighted sums,
    and scales (HIGH times the weight of integer 1, or NaN).
    """
    broken = v.f32(0.0)
    if v.ld_f32(scales + ANY_BROKEN) != 0:
        see_broken(n, x, scales, states + SCALES)
        broken = v.f32_load(states + SCALES)
    factors = raise_tops(states, maxima(spare))
    for t in range(ROWS):
        of_row = v.f32_bcast(states + SCALES + 4 * t)
        total, top = v.f32(0.0), v.f32(0.0)
        for i in range(0, n, LANES):
            at = x + SCORES * t + 4 * i
            e = v.vexp(v.f32_load(at) - of_row)
            w = e * v.f32_load(scales + OF_VALUES + 4 * i)
            total, top = total + e, v.vmax(w, top)
            v.store(at, w)
        v.store(spare + WORD * t, total)
        v.store(spare + WORD * (ROWS + t), top)
    total = totals(spare)
    v.store(states + TOTALS, v.f32_load(states + TOTALS) * factors + total)
    top = maxima(spare + ROWS * WORD)
    scale = v.select(top < TINY, 0.0, top * (1 / MOST))
    v.store(spare, v.select(scale > 0.0, 1.0 / scale, 0.0))
    v.store(states + SCALES, v.fma(total, 0.0, scale * HIGH + broken))
    for t in range(ROWS):
        row, factor = x + SCORES * t, v.f32_bcast(spare + 4 * t)
        high, low = two_bytes(
            weight(row, 0, n, factor),
            weight(row, LANES, n, factor),
            weight(row, 2 * LANES, n, factor),
            weight(row, 3 * LANES, n, factor),
        )
        v.store(weights + LINE * t, high)
        v.store(weights + LINE * t + PART, low)


@fn
def multiply_values(values, to):
    """Multiply the weights in registers A and A_NEXT by COLUMNS columns of values.

    For each LANES columns, store high * high products [ROWS][LANES], then cross products.
    """
    v.amx_zero(C)
    v.amx_zero(C_NEXT)
    v.amx_zero(D)
    v.amx_zero(D_NEXT)
    load(B, values)
    v.amx_dot_bytes(C, A, B)
    v.amx_dot_bytes(C_NEXT, A_NEXT, B)
    load(B_NEXT, values + BOTH)
    v.amx_dot_bytes(D, A, B_NEXT)
    v.amx_dot_bytes(D_NEXT, A_NEXT, B_NEXT)
    load(B, values + PART)
    v.amx_dot_bytes(C_NEXT, A, B)
    load(B_NEXT, values + BOTH + PART)
    v.amx_dot_bytes(D_NEXT, A, B_NEXT)
    v.amx_store(C, to, LINE, ROWS, WORDS)
    v.amx_store(C_NEXT, to + PART, LINE, ROWS, WORDS)
    v.amx_store(D, to + BOTH, LINE, ROWS, WORDS)
    v.amx_store(D_NEXT, to + BOTH + PART, LINE, ROWS, WORDS)


@fn
def add_values(values, weights, dv, states, sums, products):
    """Compute sums[t] = sums[t] * factor[t] + scale[t] * sum of weights[t][key] * values[key].

    This covers ROWS rows.
    """
    load(A, weights)
    load(A_NEXT, weights + PART)
    for c in range(0, dv, COLUMNS):
        multiply_values(values + c // LANES * BOTH, products)
        for t in range(ROWS):
            factor = v.f32_bcast(states + FACTORS + 4 * t)
            scale = v.f32_bcast(states + SCALES + 4 * t)
            at, x = sums + 4 * (dv * t + c), products + LINE * t
            v.store(at, v.fma(combine_products(x, PART), scale, v.f32_load(at) * factor))
            at, x = at + WORD, x + BOTH
            v.store(at, v.fma(combine_products(x, PART), scale, v.f32_load(at) * factor))


@fn
def run_tile(p, local, key, n, states):
    """Process n keys and values for a tile's rows."""
    d, dv = v.ne(p, K, 0), v.ne(p, V, 0)
    values, scales, scores, weights, spare, _ = local_offsets(d, dv)
    values, scales, scores = local + values, local + scales, local + scores
    weights, spare = local + weights, local + spare
    multiply_keys(local, states + queries_offset(dv), count_steps(d), n, scores)
    for i in range(2):
        own, x = states + STATES * i, scores + ROWS * SCORES * i
        of_queries = states + scales_offset(d, dv) + 4 * ROWS * i
        score_rows(p, key, n, x, scales, of_queries, own, spare)
        weigh_rows(n, x, scales, own, weights + BOTH * i, spare)
    for i in range(2):
        sums = states + 2 * STATES + ROWS * 4 * dv * i
        add_values(values, weights + BOTH * i, dv, states + STATES * i, sums, spare)


def _unit(source: Source) -> Function:
    load_keys, in_f32 = loading(source), build_unit(source)
    any_spoilt, finish = (
        spoilt_among(sums_address, WORD),
        build_finish(lane_address, sums_address, WORD),
    )

    @fn
    def run_keys(p, local, pair, first, n_rows, begin, end):
        """Process the keys begin .. end for rows first .. first + n_rows."""
        d, dv = v.ne(p, Q, 0), v.ne(p, V, 0)
        values, scales, _, _, spare, _ = local_offsets(d, dv)
        values, scales, spare = local + values, local + scales, local + spare
        for r in range(0, n_rows, TILE):
            states, count = tile_address(p, local, r), min(TILE, n_rows - r)
            start_rows(p, pair, first + r, count, states)
            second = min(ROWS, count - 1)  # an existing row if the second half is empty
            start_rows(p, pair, first + r + second, count - second, states + STATES)
            for at in range(states + 2 * STATES, states + queries_offset(dv), WORD):
                v.store(at, v.f32(0.0))
            to, of_queries = states + queries_offset(dv), states + scales_offset(d, dv)
            load_tile(p, pair, first + r, count, to, of_queries, spare)
        for key in range(begin, end, KEYS):
            loaded, most = False, min(KEYS, end - key)
            for r in range(0, n_rows, TILE):
                states = tile_address(p, local, r)
                n = max(keys_seen(states, key, most), keys_seen(states + STATES, key, most))
                if n > 0:
                    if not loaded:
                        load_keys(p, pair, key, most, local, values, scales, spare)
                        loaded = True
                    run_tile(p, local, key, n, states)

    @fn
    def unit(p, local, pair, first, n_rows, begin, end, part, parts):
        """Compute a unit's rows, or their partial results if the keys have several parts."""
        in_registers = v.ne(p, K, 1) >= MIN_KEYS
        if in_registers:
            amx.begin()
            run_keys(p, local, pair, first, n_rows, begin, end)
            amx.end()
        if not in_registers or any_spoilt(p, local, n_rows):
            in_f32(p, local, pair, first, n_rows, begin, end, part, parts)
        else:
            finish(p, local, pair, first, n_rows, part, parts)

    return unit


def _flash(source: Source) -> None:
    take_units = taking_units(_unit(source), TILE)

    def check(node: Tensor) -> str:
        dv = node.source(2).ne[0]
        if dv % COLUMNS:
            return f"needs rows of {COLUMNS} values or a multiple; got {dv}"
        return refusal(node, source.name, source.accepts)

    @kernel(
        "FLASH_ATTN_EXT",
        when=check,
        scratch=scratch,
        prepare=(flash_start,),
        extra=extra,
        rank=1,
        name=f"flash_attn_registers_{source.name}",
    )
    def flash_attn_registers(p, ith, nth):
        take_units(p, ith, nth, most_tiles(v.ne(p, Q, 0), v.ne(p, V, 0)))


if AMX:
    for _source in SOURCES:
        if _source.name != "f32":
            _flash(_source)
