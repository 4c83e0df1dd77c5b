"""FLASH_ATTN_EXT for many tokens and keys: tiles as in flash_tiles.py, with 16-bit integers.

An instruction computes 2x the products of f32. Keys are multiplied by queries as in integers16.py.
Each row of values is quantized to integers up to MOST_VALUE with its scale. Weights are multiplied
by this scale and quantized with one scale per query row, so masked values, with weight 0, have no
effect. No sum overflows: a row's integer weights add up to MOST_SUM or less. Values that are not
finite make sums NaN. If there is a mask, a unit with such rows is recomputed in f32. With less than
MIN_KEYS keys, this kernel computes all units in f32, so that the kernels that a model needs do not
depend on the context length.
"""

from __future__ import annotations

from ggml_cpu import vocabulary as v
from ggml_cpu.blocks import integers16
from ggml_cpu.blocks.integers16 import (
    BLOCK,
    INTEGERS,
    ROW,
    inverse,
    panel_bytes,
    row_scale,
    unpacker,
)
from ggml_cpu.kernel import Function, fn, kernel
from ggml_cpu.kernels._common import pad_to_lanes
from ggml_cpu.kernels.attention._parts import (
    K_KIND,
    KEYS,
    V_KIND,
    K,
    Q,
    V,
    flash_start,
    kv_address,
    query_address,
    refusal,
    scores_scale,
)
from ggml_cpu.kernels.attention._sources import SOURCES, WORD, Source
from ggml_cpu.kernels.attention._tile_weights import (
    FACTORS,
    MOST_SUM,
    SCALES,
    SPARE,
    STATES,
    build_finish,
    keys_seen,
    start_tile,
    weigh_tile,
)
from ggml_cpu.kernels.attention.flash_tiles import (
    COLUMN,
    MIN_TILES,
    SUMS,
    build_unit,
    extra,
    prefetch_keys,
    scratch_size,
    spoilt_among,
    taking_units,
    unit_shape,
)
from ggml_cpu.target import AMX, LANES, TILE, VNNI
from ggml_py.tensor import Tensor

MIN_KEYS = 512  # minimum keys for integers
MAX_TILES = 32  # maximum tiles per unit; a unit converts keys and values once for all its tiles
UNIT_BYTES = 5 << 17  # maximum bytes of a unit's queries and sums, to fit the L2 cache
ROWS = 2 * LANES  # keys per panel, columns of values per panel
MOST_VALUE = 8191.0
assert (MOST_SUM + 0.5 * KEYS) * MOST_VALUE < 2**31  # rounding adds at most 0.5 to each weight
VALUES = KEYS // 2 * ROW  # bytes of ROWS columns of values, as pairs of keys

multiply_keys = integers16.tile(TILE, 4 * KEYS)
spread, pack, column_bytes = INTEGERS.spread, INTEGERS.pack, INTEGERS.column_bytes


@fn
def count_steps(d: int) -> int:
    return (d + BLOCK - 1) // BLOCK


@fn
def local_offsets(d: int, dv: int) -> tuple[int, int, int, int, int, int]:
    """Return offsets in local scratch; keys are first, at offset 0.

    The offsets are: values, their scales, weights, integer weights, spare rows, tiles of a unit.
    """
    values = KEYS // ROWS * panel_bytes(count_steps(d))
    scales = values + 2 * KEYS * dv
    weights = scales + 4 * KEYS
    integers = weights + 4 * KEYS * TILE
    spare = integers + 2 * KEYS * TILE
    spare_bytes = max(SPARE, 4 * ROWS * pad_to_lanes(max(d, dv)))
    return values, scales, weights, integers, spare, spare + spare_bytes


@fn
def tile_bytes(d: int, dv: int) -> int:
    """Return the bytes of a tile: its states, sums and queries."""
    return STATES + COLUMN * dv + TILE * column_bytes(d)


@fn
def tile_address(p, local, r):
    """Return the address of the tile of row r of a unit: states, then sums, then queries."""
    d, dv = v.ne(p, Q, 0), v.ne(p, V, 0)
    return local + local_offsets(d, dv)[5] + r // TILE * tile_bytes(d, dv)


@fn
def sums_address(p, local, r):
    """Return the address of the sums of row r of a unit: vectors SUMS bytes apart."""
    return tile_address(p, local, r) + STATES + r % TILE * WORD


@fn
def lane_address(p, local, r):
    """Return the address of the lane of row r of a unit in the state vectors."""
    return tile_address(p, local, r) + 4 * (r % TILE)


@fn
def most_tiles(d: int, dv: int) -> int:
    """Return the maximum tiles per unit that fit the cache."""
    return max(MIN_TILES, min(MAX_TILES, UNIT_BYTES // tile_bytes(d, dv)))


def scratch(node: Tensor, nth: int) -> tuple[int, int]:
    d, dv = node.source(0).ne[0], node.source(2).ne[0]
    most = most_tiles(d, dv)
    shared, in_f32 = scratch_size(node, most, nth)
    tiles, _ = unit_shape(node, most, nth)
    return shared, max(in_f32, local_offsets(d, dv)[5] + tiles * tile_bytes(d, dv))


@fn
def load_tile(p, pair, first, count, to, spare):
    """Quantize a tile's scaled queries as columns; the last query fills missing rows."""
    d, scale = v.ne(p, Q, 0), scores_scale(p)
    packed = spare + 4 * pad_to_lanes(d)
    for t in range(TILE):
        if t < count:
            at = query_address(p, pair, first + t)
            for i in range(0, d, LANES):
                v.store(spare + 4 * i, v.f32_load_n(at + 4 * i, d - i) * scale)
            pack(spare, d, packed)
        spread(packed, column_bytes(d), to, TILE, t)


@fn
def add_values(values, weights, n, states, out):
    """Compute out[t] = out[t] * factor[t] + scale[t] * sum of weights[t][key] * values[key].

    This covers ROWS columns.
    """
    first = v.i32_regs(TILE)
    second = v.i32_regs(TILE)
    for _ in range((n + 1) // 2):
        x, y = v.i16_load(values), v.i16_load(values + WORD)
        for t in range(TILE):
            w = v.as_i16(v.i32_bcast(weights + 2 * KEYS * t))
            first[t] = v.dot2(first[t], x, w)
            second[t] = v.dot2(second[t], y, w)
        values += ROW
        weights += 4
    for t in range(TILE):
        before, scale = v.f32_bcast(states + FACTORS + 4 * t), v.f32_bcast(states + SCALES + 4 * t)
        at = out + WORD * t
        v.store(at, v.fma(v.to_f32(first[t]), scale, v.f32_load(at) * before))
        at += SUMS
        v.store(at, v.fma(v.to_f32(second[t]), scale, v.f32_load(at) * before))


def _load_keys(source: Source) -> Function:
    place, step = source.place, source.step
    load, size = source.element.load, source.element.size
    unpack = unpacker(source.element.load_n, size)

    @fn
    def load_whole(address, n):
        return load(address)

    scale_of = row_scale(load_whole, size, MOST_VALUE)

    @fn
    def integers(x, factor):
        return v.to_i32(v.vround(load(x) * factor))

    @fn
    def load_values(p, src, stride, n, values, scales):
        """Quantize and interleave two rows of values, or one; a missing row has scale 0."""
        dv, second = v.ne(p, V, 0), src + (n - 1) * stride
        one, other = scale_of(src, dv), scale_of(second, dv)
        v.st_f32(scales, one)
        v.st_f32(scales + 4, other if n > 1 else v.float32(0))
        for c in range(0, dv, LANES):
            x = integers(src + size * c, inverse(one))
            y = integers(second + size * c, inverse(other))
            v.store(values + c // ROWS * VALUES + c % ROWS * 4, (x & 0xFFFF) | (y << 16))

    @fn
    def load_keys(p, pair, key, n, keys, values, scales, spare):
        """Quantize n keys and values into panels; prefetch the next KEYS."""
        d, dv = v.ne(p, K, 0), v.ne(p, V, 0)
        for j in range(0, n, ROWS):
            rows, stride = min(ROWS, n - j), v.nb(p, K, 1)
            src = place(v.extra(p, K_KIND), kv_address(p, K, pair, key + j), stride, rows, d, spare)
            unpack(src, step(stride, d), rows, d, keys + j // ROWS * panel_bytes(count_steps(d)))
        for j in range(0, n, LANES):
            v.store(scales + 4 * j, v.f32(0.0))
        for j in range(0, n, 2):
            rows, stride = min(2, n - j), v.nb(p, V, 1)
            src = place(
                v.extra(p, V_KIND), kv_address(p, V, pair, key + j), stride, rows, dv, spare
            )
            load_values(p, src, step(stride, dv), rows, values + j // 2 * ROW, scales + 4 * j)
        prefetch_keys(p, pair, key + KEYS)

    return load_keys


@fn
def run_tile(p, local, key, n, states):
    """Process n keys and values for a tile's rows."""
    d, dv = v.ne(p, K, 0), v.ne(p, V, 0)
    values, scales, weights, integers, spare, _ = local_offsets(d, dv)
    values, weights, integers = local + values, local + weights, local + integers
    totals = states + STATES
    for j in range(0, n, ROWS):
        panel = local + j // ROWS * panel_bytes(count_steps(d))
        multiply_keys(panel, totals + COLUMN * dv, count_steps(d), weights + 4 * j)
    weigh_tile(p, key, n, weights, local + scales, states, integers, local + spare)
    for c in range(0, dv, ROWS):
        add_values(values + c // ROWS * VALUES, integers, n, states, totals + c * COLUMN)


def _unit(source: Source) -> Function:
    load_keys, in_f32, any_spoilt = (
        _load_keys(source),
        build_unit(source),
        spoilt_among(sums_address),
    )
    finish = build_finish(lane_address, sums_address, SUMS)

    @fn
    def run_keys(p, local, pair, first, n_rows, begin, end):
        """Process the keys begin .. end for rows first .. first + n_rows."""
        dv = v.ne(p, V, 0)
        values, scales, _, _, spare, _ = local_offsets(v.ne(p, Q, 0), dv)
        values, scales, spare = local + values, local + scales, local + spare
        for r in range(0, n_rows, TILE):
            states, count = tile_address(p, local, r), min(TILE, n_rows - r)
            start_tile(p, pair, first + r, count, states)
            for at in range(states + STATES, states + STATES + COLUMN * dv, WORD):
                v.store(at, v.f32(0.0))
            load_tile(p, pair, first + r, count, states + STATES + COLUMN * dv, spare)
        for key in range(begin, end, KEYS):
            loaded, most = False, min(KEYS, end - key)
            for r in range(0, n_rows, TILE):
                states = tile_address(p, local, r)
                n = keys_seen(states, key, most)
                if n > 0:
                    if not loaded:
                        load_keys(p, pair, key, most, local, values, scales, spare)
                        loaded = True
                    run_tile(p, local, key, n, states)

    @fn
    def unit(p, local, pair, first, n_rows, begin, end, part, parts):
        """Compute a unit's rows, or their partial results if the keys have several parts."""
        integers = v.ne(p, K, 1) >= MIN_KEYS
        if integers:
            run_keys(p, local, pair, first, n_rows, begin, end)
        if not integers or any_spoilt(p, local, n_rows):
            in_f32(p, local, pair, first, n_rows, begin, end, part, parts)
        else:
            finish(p, local, pair, first, n_rows, part, parts)

    return unit


def _flash(source: Source) -> None:
    take_units = taking_units(_unit(source))

    def check(node: Tensor) -> str:
        dv = node.source(2).ne[0]
        if dv % ROWS:
            return f"needs rows of {ROWS} values or a multiple; got {dv}"
        return refusal(node, source.name, source.accepts)

    @kernel(
        "FLASH_ATTN_EXT",
        when=check,
        scratch=scratch,
        prepare=(flash_start,),
        extra=extra,
        rank=1,
        name=f"flash_attn_integers_{source.name}",
    )
    def flash_attn_integers(p, ith, nth):
        take_units(p, ith, nth, most_tiles(v.ne(p, Q, 0), v.ne(p, V, 0)))


if VNNI and not AMX:
    for _source in SOURCES:
        if _source.name != "f32":
            _flash(_source)
