"""FLASH_ATTN_EXT for many tokens: tiles of TILE query rows times KEYS keys, all in f32.

A unit packs keys and values into panels once for all its tiles. It skips tiles if the mask hides
all of the keys, which halves the work of a causal mask. Threads take units one by one.
"""

from __future__ import annotations

from ggml_cpu import vocabulary as v
from ggml_cpu.blocks.interleave import interleave_words
from ggml_cpu.kernel import Function, fn, kernel
from ggml_cpu.kernels._common import pad_to_lanes
from ggml_cpu.kernels._units import PER_THREAD, next_unit
from ggml_cpu.kernels.attention._parts import (
    FACTOR,
    K_BYTES,
    K_KIND,
    KEYS,
    MIN_KEYS,
    STATE,
    V_BYTES,
    V_KIND,
    K,
    Q,
    V,
    finish_row,
    flash_start,
    group_size,
    is_spoilt,
    keys_seen,
    kv_address,
    merge_parts,
    query_address,
    refusal,
    scores_scale,
    shared_bytes,
    start_row,
    weigh_row,
)
from ggml_cpu.kernels.attention._sources import SOURCES, WORD, Source, kv_kinds
from ggml_cpu.target import LANES, TILE
from ggml_py.tensor import Tensor

MIN_TILES, MAX_TILES = 4, 16  # tiles per unit
UNIT_BYTES = 1 << 18  # maximum bytes of a unit's queries and sums, to fit the L2 cache
COLUMN = 4 * TILE  # bytes of one column of a tile's rows
PANEL = KEYS * WORD  # bytes of LANES columns of values
SUMS = TILE * WORD  # bytes of LANES columns of a tile's sums


@fn
def most_tiles(d: int, dv: int) -> int:
    """Return the maximum tiles per unit that fit the cache."""
    return max(MIN_TILES, min(MAX_TILES, UNIT_BYTES // (COLUMN * (d + dv))))


@fn
def tiles_per_unit(rows: int, pairs: int, most: int, nth: int, tile: int) -> int:
    """Return the tiles (of `tile` rows) per unit, few enough to give all threads work."""
    tiles = (rows + tile - 1) // tile
    wanted = (pairs * tiles + PER_THREAD * nth - 1) // (PER_THREAD * nth)
    return min(tiles, most, max(MIN_TILES, wanted))


@fn
def count_parts(units: int, n_kv: int, nth: int) -> int:
    """Return the parts of the keys: several if there are too few units for all threads."""
    if nth == 1 or units >= PER_THREAD * nth:
        return 1
    return max(1, min(PER_THREAD * nth // units, n_kv // MIN_KEYS))


@fn
def count_units(p, most, nth, tile):
    """Return (tiles per unit, blocks of rows, parts of the keys)."""
    rows, pairs = v.ne(p, Q, 1) * group_size(p), v.ne(p, K, 2) * v.ne(p, K, 3)
    tiles = tiles_per_unit(rows, pairs, most, nth, tile)
    blocks = (rows + tiles * tile - 1) // (tiles * tile)
    return tiles, blocks, count_parts(pairs * blocks, v.ne(p, K, 1), nth)


def most_blocks(node: Tensor) -> int:
    """Return the number of blocks of rows if each is one tile, the maximum."""
    q, k = node.sources(2)
    rows = q.ne[1] * (q.ne[2] // k.ne[2])
    return k.ne[2] * k.ne[3] * -(-rows // TILE)


def extra(node: Tensor) -> tuple[int, ...]:
    return (most_blocks(node), *kv_kinds(node))


@fn
def local_offsets(d: int, dv: int) -> tuple[int, int, int, int]:
    """Return offsets in local scratch: values, weights, spare rows, tiles of a unit.

    Keys are first, at offset 0. dv must be a multiple of LANES.
    """
    values = 4 * KEYS * pad_to_lanes(d)
    weights = values + 4 * KEYS * dv
    spare = weights + 4 * KEYS * TILE
    return values, weights, spare, spare + 4 * LANES * max(pad_to_lanes(d), dv)


@fn
def tile_bytes(d: int, dv: int) -> int:
    """Return the bytes of a tile: its states, sums and queries."""
    return TILE * STATE + COLUMN * (dv + d)


def unit_shape(node: Tensor, most: int, nth: int, tile: int = TILE) -> tuple[int, int]:
    """Return (tiles per unit, parts of the keys) for units of up to `most` tiles of `tile` rows."""
    q, k = node.sources(2)
    rows, pairs = q.ne[1] * (q.ne[2] // k.ne[2]), k.ne[2] * k.ne[3]
    tiles = tiles_per_unit(rows, pairs, most, nth, tile)
    return tiles, count_parts(pairs * -(-rows // (tiles * tile)), k.ne[1], nth)


def scratch_size(node: Tensor, most: int, nth: int, tile: int = TILE) -> tuple[int, int]:
    """Return the scratch (shared, local) in f32 for units of up to `most` tiles of `tile` rows."""
    d, dv = node.source(0).ne[0], pad_to_lanes(node.source(2).ne[0])
    tiles, parts = unit_shape(node, most, nth, tile)
    in_f32 = -(-tiles * tile // TILE)
    local = local_offsets(d, dv)[3] + in_f32 * tile_bytes(d, dv) + WORD
    return shared_bytes(node, most_blocks(node), parts), local


def scratch(node: Tensor, nth: int) -> tuple[int, int]:
    return scratch_size(
        node, most_tiles(node.source(0).ne[0], pad_to_lanes(node.source(2).ne[0])), nth
    )


@fn
def multiply_keys(keys, q, d, out):
    """Compute out[t][key] = <q[t], key> for one panel of keys."""
    sums = v.f32_tile()
    for _ in range(d):
        x = v.f32_load(keys)
        for t in range(TILE):
            sums[t] = v.fma(x, v.f32_bcast(q + 4 * t), sums[t])
        keys += WORD
        q += COLUMN
    for t in range(TILE):
        v.store(out + 4 * KEYS * t, sums[t])


@fn
def add_values(values, weights, n, state, out):
    """Compute out[t] = out[t] * factor[t] + sum of weights[t][key] * values[key] for one panel."""
    sums = v.f32_tile()
    for t in range(TILE):
        sums[t] = v.f32_load(out + WORD * t) * v.f32_bcast(state + STATE * t + FACTOR)
    for _ in range(n):
        x = v.f32_load(values)
        for t in range(TILE):
            sums[t] = v.fma(x, v.f32_bcast(weights + 4 * KEYS * t), sums[t])
        values += WORD
        weights += 4
    for t in range(TILE):
        v.store(out + WORD * t, sums[t])


@fn
def add_seen_values(values, weights, n, state, out):
    """Do the same as add_values, but skip values of weight 0, which may be NaN."""
    for t in range(TILE):
        s = v.f32_load(out + WORD * t) * v.f32_bcast(state + STATE * t + FACTOR)
        for key in range(n):
            weight = v.ld_f32(weights + 4 * (KEYS * t + key))
            if weight != 0.0:
                s = v.fma(v.f32_load(values + WORD * key), weight, s)
        v.store(out + WORD * t, s)


@fn
def prefetch_rows(at, stride, size):
    """Prefetch KEYS rows of `size` bytes."""
    for j in range(KEYS):
        for i in range(0, size, 64):
            v.prefetch(at + j * stride + i)


@fn
def prefetch_keys(p, pair, key):
    """Prefetch KEYS keys and values from `key` on."""
    prefetch_rows(kv_address(p, K, pair, key), v.nb(p, K, 1), v.extra(p, K_BYTES))
    prefetch_rows(kv_address(p, V, pair, key), v.nb(p, V, 1), v.extra(p, V_BYTES))


@fn
def load_tile(p, pair, first, count, q, spare):
    """Pack a tile's scaled queries as [d][TILE]; the last query fills missing rows."""
    d, scale = v.ne(p, Q, 0), scores_scale(p)
    for start in range(0, TILE, LANES):
        rows = max(1, min(LANES, count - start))
        for j in range(rows):
            at = query_address(p, pair, first + min(start + j, count - 1))
            for i in range(0, d, LANES):
                x = v.f32_load_n(at + 4 * i, d - i)
                v.store(spare + 4 * (j * pad_to_lanes(d) + i), x * scale)
        interleave_words(spare, 4 * pad_to_lanes(d), rows, d, q + 4 * start, COLUMN)


def _load_keys(source: Source) -> Function:
    panel, row = source.panel, source.row

    @fn
    def load_keys(p, pair, key, n, keys, values, spare):
        """Pack n keys and values into panels: keys [d][LANES], values [KEYS][LANES]."""
        d, dv = v.ne(p, K, 0), v.ne(p, V, 0)
        for j in range(0, n, LANES):
            src, to, rows = kv_address(p, K, pair, key + j), keys + j * 4 * d, min(LANES, n - j)
            panel(v.extra(p, K_KIND), src, v.nb(p, K, 1), rows, d, to, spare)
        for j in range(n):
            src, to = kv_address(p, V, pair, key + j), values + j * WORD
            row(v.extra(p, V_KIND), src, dv, to, PANEL, spare)
        prefetch_keys(p, pair, key + KEYS)

    return load_keys


@fn
def run_tile(p, pair, first, count, key, n, q, keys, values, weights, state, sums, careful):
    """Process n keys and values for a tile's rows."""
    d = v.ne(p, K, 0)
    for j in range(0, n, LANES):
        multiply_keys(keys + j * 4 * d, q, d, weights + 4 * j)
    for t in range(count):
        weigh_row(p, pair, first + t, key, n, weights + t * 4 * KEYS, state + t * STATE)
    for c in range(0, v.ne(p, V, 0), LANES):
        if careful:
            add_seen_values(values + c * 4 * KEYS, weights, n, state, sums + c * COLUMN)
        else:
            add_values(values + c * 4 * KEYS, weights, n, state, sums + c * COLUMN)


@fn
def tile_address(p, local, r):
    """Return the address of the tile of row r of a unit: states, then sums, then queries."""
    d, dv = v.ne(p, Q, 0), pad_to_lanes(v.ne(p, V, 0))
    return local + local_offsets(d, dv)[3] + r // TILE * tile_bytes(d, dv)


@fn
def sums_address(p, local, r):
    """Return the address of the sums of row r of a unit: vectors SUMS bytes apart."""
    return tile_address(p, local, r) + TILE * STATE + r % TILE * WORD


def spoilt_among(sums_address: Function, step: int = SUMS) -> Function:
    """Return any_spoilt(p, local, n_rows): True if `is_spoilt` is for a row of a unit.

    sums_address(p, local, r) returns the address of a row's sums, vectors `step` bytes apart.
    """

    @fn
    def any_spoilt(p, local, n_rows):
        r = 0
        while r < n_rows and not is_spoilt(p, sums_address(p, local, r), step):
            r += 1
        return r < n_rows

    return any_spoilt


def taking_units(unit: Function, tile: int = TILE) -> Function:
    """Return take_units(p, ith, nth, most): a thread's loop over units of up to `most` tiles."""

    @fn
    def take_units(p, ith, nth, most):
        tiles, blocks, parts = count_units(p, most, nth, tile)
        rows, pairs = v.ne(p, Q, 1) * group_size(p), v.ne(p, K, 2) * v.ne(p, K, 3)
        u = next_unit(p)
        while u < pairs * parts * blocks:
            block = blocks - 1 - u // (pairs * parts)  # last rows first: they see the most keys
            pair, part = u // parts % pairs, u % parts
            first = block * tiles * tile
            n_rows = min(tiles * tile, rows - first)
            begin, end = v.split_aligned(v.ne(p, K, 1), KEYS, part, parts)
            unit(p, v.local(p, ith), pair, first, n_rows, begin, end, part, parts)
            merge_parts(p, pair, first, n_rows, pair * blocks + block, parts)
            u = next_unit(p)

    return take_units


def build_unit(source: Source) -> Function:
    load_keys, any_spoilt = _load_keys(source), spoilt_among(sums_address)

    @fn
    def run_keys(p, local, pair, first, n_rows, begin, end, careful):
        """Process the keys begin .. end for rows first .. first + n_rows."""
        d, dv = v.ne(p, Q, 0), pad_to_lanes(v.ne(p, V, 0))
        values, weights, spare, _ = local_offsets(d, dv)
        keys, values, weights, spare = local, local + values, local + weights, local + spare
        for r in range(0, n_rows, TILE):
            state, sums = tile_address(p, local, r), sums_address(p, local, r)
            count = min(TILE, n_rows - r)
            for t in range(TILE):
                row = first + r + min(t, count - 1)
                start_row(p, pair, row, state + t * STATE, sums + t * WORD, SUMS)
            load_tile(p, pair, first + r, count, sums + COLUMN * dv, spare)
        for key in range(begin, end, KEYS):
            loaded = False
            for r in range(0, n_rows, TILE):
                count = min(TILE, n_rows - r)
                n = keys_seen(p, pair, first + r, count, key, min(KEYS, end - key))
                if n > 0:
                    if not loaded:
                        load_keys(p, pair, key, min(KEYS, end - key), keys, values, spare)
                        loaded = True
                    row, state, s = first + r, tile_address(p, local, r), sums_address(p, local, r)
                    q = s + COLUMN * dv
                    run_tile(
                        p, pair, row, count, key, n, q, keys, values, weights, state, s, careful
                    )

    @fn
    def unit(p, local, pair, first, n_rows, begin, end, part, parts):
        """Compute a unit's rows, or their partial results if the keys have several parts."""
        careful, again = False, True
        while again:  # a loop with one call, because each call is inlined
            run_keys(p, local, pair, first, n_rows, begin, end, careful)
            again = not careful and any_spoilt(p, local, n_rows)
            careful = again
        for r in range(n_rows):
            state = tile_address(p, local, r) + r % TILE * STATE
            finish_row(p, pair, first + r, part, parts, state, sums_address(p, local, r), SUMS)

    return unit


def _flash(source: Source) -> None:
    take_units = taking_units(build_unit(source))

    def check(node: Tensor) -> str:
        return refusal(node, source.name, source.accepts)

    @kernel(
        "FLASH_ATTN_EXT",
        when=check,
        scratch=scratch,
        prepare=(flash_start,),
        extra=extra,
        name=f"flash_attn_tiles_{source.name}",
    )
    def flash_attn_tiles(p, ith, nth):
        take_units(p, ith, nth, most_tiles(v.ne(p, Q, 0), pad_to_lanes(v.ne(p, V, 0))))


for _source in SOURCES:
    _flash(_source)
