"""GATED_DELTA_NET, chunked algorithm: a vector holds one key of LANES rows of the state.

Tokens are processed CHUNK at a time, with the rows of the state as SIMD lanes. Let c(s, t) be the
decay from token s to token t (a vector over the keys) and M the state before the chunk. Then
    delta[t] = beta[t] * (v[t] - M (c(0, t) k[t]) - sum_{s < t} delta[s] <c(s, t) k[s], k[t]>)
    o[t] = M (c(0, t) q[t]) + sum_{s <= t} delta[s] <c(s, t) k[s], q[t]>
    M' = c(0, CHUNK) M + sum_s delta[s] (c(s, CHUNK) k[s])
Each chunk reads M twice and writes it once, and all inner loops are matrix multiplications.
"""

from __future__ import annotations

from ggml_cpu import vocabulary as v
from ggml_cpu.blocks.interleave import interleave_words
from ggml_cpu.kernel import fn, routine
from ggml_cpu.kernels._common import pad_to_lanes
from ggml_cpu.kernels.delta_net._gated import (
    B,
    K,
    Q,
    V,
    compute_decay,
    first_decay,
    initial_state_address,
    key_address,
    output_address,
    prefetch_token,
    snapshot_address,
    value_address,
)
from ggml_cpu.target import LANES, TILE

CHUNK = TILE // 2  # tokens per chunk: their keys and queries fill a tile
CHUNKS = 8  # chunks processed together; local scratch has tables for each
MIN_CHUNKS = 2  # minimum chunks; fewer do not pay for transposing the state
WORD = 4 * LANES  # bytes of a vector
MAX_SIZE = 256  # maximum elements per state row
STRIDE = 4 * (MAX_SIZE + 16)  # bytes between rows of a chunk's tables; an odd number of cache lines
# Offsets in a chunk's tables: decayed keys and decayed queries (TILE rows), the chunk's decay, keys
# decayed to the chunk's end and values (CHUNK rows each), products of decayed keys with keys and
# with queries (f32 [CHUNK][CHUNK] each), and beta.
KEEP = TILE * STRIDE
UPDATE = KEEP + STRIDE
VALUES = UPDATE + CHUNK * STRIDE
WITH_KEYS = VALUES + CHUNK * STRIDE
WITH_QUERIES = WITH_KEYS + 4 * CHUNK * CHUNK
BETA = WITH_QUERIES + 4 * CHUNK * CHUNK
TABLES = BETA + 4 * CHUNK + 64


@fn
def state_bytes(rows: int, size: int) -> int:
    """Return the bytes of the transposed state of `rows` rows, in blocks [size][LANES]."""
    return pad_to_lanes(rows) // LANES * WORD * size


def local_bytes(size: int) -> int:
    """Return the bytes of local scratch.

    It holds a head's transposed state, the tables of CHUNKS chunks, and three rows for
    `make_tables`.
    """
    return state_bytes(size, size) + CHUNKS * TABLES + 3 * STRIDE


@fn
def decayed_products(w, decay, keys, queries, size, at):
    """Decay row w in place and store its dot products with the keys and the queries."""
    with_keys = v.f32(0.0)
    with_queries = v.f32(0.0)
    for i in range(0, size, LANES):
        x = v.f32_load(w + 4 * i) * v.f32_load(decay + 4 * i)
        v.store(w + 4 * i, x)
        with_keys = v.fma(x, v.f32_load(keys + 4 * i), with_keys)
        with_queries = v.fma(x, v.f32_load(queries + 4 * i), with_queries)
    v.st_f32(at, v.vsum(with_keys))
    v.st_f32(at + 4 * CHUNK * CHUNK, v.vsum(with_queries))


@routine
def make_tables(p, head, seq, start, tables, spare):
    """Compute the tables of the CHUNK tokens from `start`; spare: three rows of scratch."""
    size = v.ne(p, V, 0)
    scale = 1.0 / v.sqrtf(v.float32(size))
    keys, queries, decays = spare, spare + STRIDE, spare + 2 * STRIDE
    for i in range(0, size, LANES):
        v.store(tables + KEEP + 4 * i, v.f32(1.0))
    for t in range(CHUNK):
        k, q = key_address(p, K, head, seq, start + t), key_address(p, Q, head, seq, start + t)
        values, decay = (
            value_address(p, V, head, seq, start + t),
            first_decay(p, head, seq, start + t),
        )
        prefetch_token(p, head, seq, start + t + CHUNK)
        for i in range(0, size, LANES):
            v.store(tables + VALUES + t * STRIDE + 4 * i, v.f32_load_n(values + 4 * i, size - i))
            c = compute_decay(p, head, seq, start + t, i, decay)
            x = v.f32_load_n(k + 4 * i, size - i)
            y = v.f32_load_n(q + 4 * i, size - i) * scale
            v.store(keys + 4 * i, x)
            v.store(queries + 4 * i, y)
            v.store(decays + 4 * i, c)
            c = c * v.f32_load(tables + KEEP + 4 * i)
            v.store(tables + KEEP + 4 * i, c)
            v.store(tables + t * STRIDE + 4 * i, x * c)
            v.store(tables + (CHUNK + t) * STRIDE + 4 * i, y * c)
            v.store(tables + UPDATE + t * STRIDE + 4 * i, x)
        for s in range(t):
            at = tables + WITH_KEYS + 4 * (t * CHUNK + s)
            decayed_products(tables + UPDATE + s * STRIDE, decays, keys, queries, size, at)
        total = v.f32(0.0)
        for i in range(0, size, LANES):
            total = v.fma(v.f32_load(keys + 4 * i), v.f32_load(queries + 4 * i), total)
        v.st_f32(tables + WITH_QUERIES + 4 * (t * CHUNK + t), v.vsum(total))
        v.st_f32(tables + BETA + 4 * t, v.ld_f32(value_address(p, B, head, seq, start + t)))


@fn
def solve_chunk(p, head, seq, start, row, rows, sums, deltas, tables):
    """Compute the deltas and outputs of CHUNK tokens from their products with the state."""
    for t in range(CHUNK):
        delta = v.f32_load(tables + VALUES + t * STRIDE + 4 * row) - sums[t]
        out = sums[CHUNK + t]
        for s in range(CHUNK):
            if s < t:
                at = tables + WITH_KEYS + 4 * (t * CHUNK + s)
                delta = delta - deltas[s] * v.f32_bcast(at)
                out = v.fma(deltas[s], v.f32_bcast(at + 4 * CHUNK * CHUNK), out)
        delta = delta * v.f32_bcast(tables + BETA + 4 * t)
        deltas[t] = delta
        own = v.f32_bcast(tables + WITH_QUERIES + 4 * (t * CHUNK + t))
        v.store_n(output_address(p, head, seq, start + t) + 4 * row, v.fma(delta, own, out), rows)


@routine
def run_chunk(p, head, seq, start, row, rows, m, tables):
    """Update up to LANES rows of the transposed state m [size][LANES] by one chunk."""
    size = v.ne(p, V, 0)
    sums = v.f32_tile()
    at, x = m, tables
    for _ in range(size):
        lanes = v.f32_load(at)
        for t in range(TILE):
            sums[t] = v.fma(lanes, v.f32_bcast(x + t * STRIDE), sums[t])
        at += WORD
        x += 4
    deltas = v.f32_regs(CHUNK)
    solve_chunk(p, head, seq, start, row, rows, sums, deltas, tables)
    at, x = m, tables + KEEP
    for _ in range(size):
        y = v.f32_load(at) * v.f32_bcast(x)
        for t in range(CHUNK):
            y = v.fma(deltas[t], v.f32_bcast(x + (1 + t) * STRIDE), y)
        v.store(at, y)
        at += WORD
        x += 4


@routine
def store_rows(m, size, rows, to):
    """Transpose `rows` rows of the state m back and store them at `to`."""
    for i in range(0, size, LANES):
        tile = v.f32_regs(LANES)
        for j in range(LANES):
            tile[j] = v.f32_load(m + min(i + j, size - 1) * WORD)
        v.transpose(tile)
        for r in range(LANES):
            if r < rows:
                v.store_n(to + 4 * (r * size + i), tile[r], size - i)


@fn
def run_chunks(p, head, seq, first, stop, n_chunks, m):
    """Process rows first..stop of a head for the first n_chunks * CHUNK tokens."""
    size = v.ne(p, V, 0)
    block = state_bytes(LANES, size)
    tables = m + state_bytes(stop - first, size)
    source, target = initial_state_address(p, head, seq), snapshot_address(p, 0, head, seq)
    for row in range(first, stop, LANES):
        at = m + (row - first) // LANES * block
        rows = min(LANES, stop - row)
        interleave_words(source + 4 * row * size, 4 * size, rows, size, at, WORD)
    for done in range(0, n_chunks, CHUNKS):
        count = min(CHUNKS, n_chunks - done)
        for i in range(count):
            at = tables + i * TABLES
            make_tables(p, head, seq, (done + i) * CHUNK, at, tables + CHUNKS * TABLES)
        for row in range(first, stop, LANES):
            at, rows = m + (row - first) // LANES * block, min(LANES, stop - row)
            for i in range(count):
                start = (done + i) * CHUNK
                run_chunk(p, head, seq, start, row, rows, at, tables + i * TABLES)
    for row in range(first, stop, LANES):
        at, rows = m + (row - first) // LANES * block, min(LANES, stop - row)
        store_rows(at, size, rows, target + 4 * row * size)
