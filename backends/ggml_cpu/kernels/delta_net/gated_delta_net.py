"""GATED_DELTA_NET: rows of the state are independent, so threads take heads or parts of their rows.

Many tokens are run CHUNK at a time with the rows of the state as lanes. Let c(s, t) be the decay
from token s to token t (a vector over the keys) and M the state before the chunk. Then
    delta[t] = beta[t] * (v[t] - M (c(0, t) k[t]) - sum_{s < t} delta[s] <c(s, t) k[s], k[t]>)
    o[t] = M (c(0, t) q[t]) + sum_{s <= t} delta[s] <c(s, t) k[s], q[t]>
    M' = c(0, CHUNK) M + sum_s delta[s] (c(s, CHUNK) k[s])
so M is read twice and written once per chunk, and all inner loops are those of a matrix product.
The tokens that remain, and those whose states are wanted as snapshots, run one by one.
"""

from __future__ import annotations

from ggml_cpu import vocabulary as v
from ggml_cpu.blocks.interleave import interleave_words
from ggml_cpu.kernel import fn, kernel
from ggml_cpu.kernels._common import padded
from ggml_cpu.kernels._moves import copy_bytes
from ggml_cpu.kernels._states import row_at
from ggml_cpu.kernels._sums import lane_sums
from ggml_cpu.kernels._units import PER_THREAD, UNITS_BYTES, next_unit, start_units
from ggml_cpu.target import LANES, TILE
from ggml_py.tensor import Tensor

CHUNK = TILE // 2  # tokens at a time: their keys and queries are a tile
CHUNKS = 8  # chunks whose tables are made at a time
MIN_CHUNKS = 2  # fewest chunks worth transposing the state for
WORD = 4 * LANES  # bytes of a vector
MAX_SIZE = 256  # longest row that goes through chunks
STRIDE = 4 * (MAX_SIZE + 16)  # bytes between rows of a chunk's tables; an odd number of cache lines
HALF = LANES // 2  # state rows at a time, token by token
# A chunk's tables: decayed keys, decayed queries (TILE rows); the chunk's decay and CHUNK rows of
# keys decayed to its end; then products of those keys with keys and queries, and beta.
KEEP = TILE * STRIDE
UPDATE = KEEP + STRIDE
VALUES = UPDATE + CHUNK * STRIDE
WITH_KEYS = VALUES + CHUNK * STRIDE
WITH_QUERIES = WITH_KEYS + 4 * CHUNK * CHUNK
BETA = WITH_QUERIES + 4 * CHUNK * CHUNK
TABLES = BETA + 4 * CHUNK + 64
Q, K, V, G, B, STATE, TARGET = 1, 2, 3, 4, 5, 6, 7


@fn
def parts_of(heads, size, nth):
    """Into how many parts the rows of a head are cut, so that all threads find work."""
    if nth == 1:
        return 1
    wanted = (PER_THREAD * nth + heads - 1) // heads
    return max(1, min(wanted, (size + LANES - 1) // LANES))


@fn
def vector_bytes(size: int) -> int:
    """Of a token's decayed keys, decayed queries and decays, which follow each other."""
    return 4 * padded(size)


@fn
def state_bytes(rows: int, size: int) -> int:
    """The transposed state of `rows` rows: for LANES of them [size][LANES]; then come the tables of
    CHUNKS chunks, and three rows to make them.
    """
    return padded(rows) // LANES * WORD * size


def scratch(node: Tensor, nth: int) -> tuple[int, int]:
    """Per thread: what chunks need, or the vectors of one token."""
    size = node.source(2).ne[0]
    chunked = state_bytes(size, size) + CHUNKS * TABLES + 3 * STRIDE if size <= MAX_SIZE else 0
    return UNITS_BYTES, max(chunked, 3 * vector_bytes(size))


@fn
def key_at(p, k, head, seq, t):
    """Address of a row of q or k: value head h uses key head h mod H_k."""
    i1, i3 = head % v.ne(p, k, 1), seq // (v.ne(p, V, 3) // v.ne(p, k, 3))
    return v.data(p, k) + i1 * v.nb(p, k, 1) + t * v.nb(p, k, 2) + i3 * v.nb(p, k, 3)


@fn
def value_at(p, k, head, seq, t):
    """Address of a row of v, g or beta."""
    return v.data(p, k) + head * v.nb(p, k, 1) + t * v.nb(p, k, 2) + seq * v.nb(p, k, 3)


@fn
def output_at(p, head, seq, t):
    size, n_head, n_tokens = v.ne(p, V, 0), v.ne(p, V, 1), v.ne(p, V, 2)
    return v.data(p, 0) + 4 * size * ((seq * n_tokens + t) * n_head + head)


@fn
def source_at(p, head, seq):
    """The head's state before the first token."""
    return v.data(p, STATE) + head * v.nb(p, STATE, 2) + seq * v.nb(p, STATE, 3)


@fn
def snapshot_at(p, slot, head, seq):
    """Where the head's state of `slot` tokens before the last goes."""
    size, n_head, n_tokens, n_seqs = v.ne(p, V, 0), v.ne(p, V, 1), v.ne(p, V, 2), v.ne(p, V, 3)
    if v.data(p, TARGET) != 0:
        at = row_at(p, TARGET, slot, seq, size * size * n_head, n_seqs)
        return at + head * 4 * size * size
    outputs = size * n_head * n_tokens * n_seqs
    return v.data(p, 0) + 4 * (outputs + ((slot * n_seqs + seq) * n_head + head) * size * size)


@fn
def first_decay(p, head, seq, t):
    """exp(gate) where one gate serves all keys."""
    return v.vexp(v.f32_bcast(value_at(p, G, head, seq, t)))


@fn
def decay_of(p, head, seq, t, i, first):
    """exp(gate) of the keys from i on."""
    if v.ne(p, G, 0) == 1:
        return first
    return v.vexp(v.f32_load_n(value_at(p, G, head, seq, t) + 4 * i, v.ne(p, G, 0) - i))


@fn
def prefetch_token(p, head, seq, t):
    for i in range(0, 4 * v.ne(p, V, 0), 64):
        v.prefetch(key_at(p, K, head, seq, t) + i)
        v.prefetch(key_at(p, Q, head, seq, t) + i)
        v.prefetch(value_at(p, V, head, seq, t) + i)


# ---- token by token: a vector holds keys of one row


@fn
def load_token(p, head, seq, t, keys, queries, decays):
    """Decayed keys, decayed and scaled queries, decays; returns <k, q>, scaled."""
    size = v.ne(p, V, 0)
    scale = 1.0 / v.sqrtf(v.float32(size))
    k, q = key_at(p, K, head, seq, t), key_at(p, Q, head, seq, t)
    total = v.f32(0.0)
    decay = first_decay(p, head, seq, t)
    for i in range(0, size, LANES):
        c = decay_of(p, head, seq, t, i, decay)
        x = v.f32_load_n(k + 4 * i, size - i)
        y = v.f32_load_n(q + 4 * i, size - i) * scale
        v.store(keys + 4 * i, x * c)
        v.store(queries + 4 * i, y * c)
        v.store(decays + 4 * i, c)
        total = v.fma(x, y, total)
    return v.vsum(total)


@fn
def step_rows(p, head, seq, t, first, rows, old, new, keys, kq):
    """HALF rows of the state over one token; rows past the last repeat it and are not stored."""
    size = v.ne(p, V, 0)
    stride = 4 * size
    queries, decays = keys + vector_bytes(size), keys + 2 * vector_bytes(size)
    old, new = old + first * stride, new + first * stride
    sums = v.f32_regs(LANES)
    for i in range(0, size, LANES):
        x, y = v.f32_load(keys + 4 * i), v.f32_load(queries + 4 * i)
        for r in range(HALF):
            m = v.f32_load_n(old + min(r, rows - 1) * stride + 4 * i, size - i)
            sums[r] = v.fma(m, x, sums[r])
            sums[HALF + r] = v.fma(m, y, sums[HALF + r])
    found = lane_sums(sums)
    values = value_at(p, V, head, seq, t) + 4 * first
    wanted = v.low(v.f32_load_n(values, rows))
    delta = (wanted - v.low(found)) * v.ld_f32(value_at(p, B, head, seq, t))
    out = v.high(found) + delta * kq
    v.store_n(output_at(p, head, seq, t) + 4 * first, out, rows)
    k = key_at(p, K, head, seq, t)
    for i in range(0, size, LANES):
        x, c = v.f32_load_n(k + 4 * i, size - i), v.f32_load(decays + 4 * i)
        for r in range(HALF):
            if r < rows:
                m = v.f32_load_n(old + r * stride + 4 * i, size - i)
                m = v.fma(v.f32(v.lane(delta, r)), x, m * c)
                v.store_n(new + r * stride + 4 * i, m, size - i)


@fn
def run_tokens(p, head, seq, first, stop, start, scratch_at):
    """Rows first..stop of a head over the tokens from `start` on."""
    size, n_tokens, n_slots = v.ne(p, V, 0), v.ne(p, V, 2), v.op_i32(p, 0)
    step = vector_bytes(size)
    old = source_at(p, head, seq)
    if start > 0:
        old = snapshot_at(p, 0, head, seq)
    for t in range(start, n_tokens):
        slot = n_tokens - 1 - t
        new = snapshot_at(p, slot if slot < n_slots else 0, head, seq)
        at, to = scratch_at, scratch_at + step
        kq = load_token(p, head, seq, t, at, to, to + step)
        for r in range(first, stop, HALF):
            step_rows(p, head, seq, t, r, min(HALF, stop - r), old, new, at, kq)
        old = new


# ---- chunks: a vector holds one key of LANES rows


@fn
def decayed_products(w, decay, keys, queries, size, at):
    """Decay the row w and store its products with keys and queries."""
    with_keys = v.f32(0.0)
    with_queries = v.f32(0.0)
    for i in range(0, size, LANES):
        x = v.f32_load(w + 4 * i) * v.f32_load(decay + 4 * i)
        v.store(w + 4 * i, x)
        with_keys = v.fma(x, v.f32_load(keys + 4 * i), with_keys)
        with_queries = v.fma(x, v.f32_load(queries + 4 * i), with_queries)
    v.st_f32(at, v.vsum(with_keys))
    v.st_f32(at + 4 * CHUNK * CHUNK, v.vsum(with_queries))


@fn
def make_tables(p, head, seq, start, tables, spare):
    """The tables of the CHUNK tokens from `start` on; spare: three rows."""
    size = v.ne(p, V, 0)
    scale = 1.0 / v.sqrtf(v.float32(size))
    keys, queries, decays = spare, spare + STRIDE, spare + 2 * STRIDE
    for i in range(0, size, LANES):
        v.store(tables + KEEP + 4 * i, v.f32(1.0))
    for t in range(CHUNK):
        k, q = key_at(p, K, head, seq, start + t), key_at(p, Q, head, seq, start + t)
        values, decay = value_at(p, V, head, seq, start + t), first_decay(p, head, seq, start + t)
        prefetch_token(p, head, seq, start + t + CHUNK)
        for i in range(0, size, LANES):
            v.store(tables + VALUES + t * STRIDE + 4 * i, v.f32_load_n(values + 4 * i, size - i))
            c = decay_of(p, head, seq, start + t, i, decay)
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
        v.st_f32(tables + BETA + 4 * t, v.ld_f32(value_at(p, B, head, seq, start + t)))


@fn
def solve_chunk(p, head, seq, start, row, rows, sums, deltas, tables):
    """The deltas of CHUNK tokens from the products with the state, and the outputs."""
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
        v.store_n(output_at(p, head, seq, start + t) + 4 * row, v.fma(delta, own, out), rows)


@fn
def run_chunk(p, head, seq, start, row, rows, m, tables):
    """LANES rows of the transposed state m [size][LANES] over a chunk."""
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


@fn
def store_rows(m, size, rows, to):
    """The transposed state of `rows` rows back as rows."""
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
    """Rows first..stop of a head over the first n_chunks * CHUNK tokens."""
    size = v.ne(p, V, 0)
    block = state_bytes(LANES, size)
    tables = m + state_bytes(stop - first, size)
    source, target = source_at(p, head, seq), snapshot_at(p, 0, head, seq)
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


@fn
def keep_rows(p, head, seq, first, stop):
    """Without tokens the state stays as it is."""
    row = 4 * v.ne(p, V, 0)
    old, new = source_at(p, head, seq), snapshot_at(p, 0, head, seq)
    copy_bytes(new + first * row, old + first * row, (stop - first) * row)


@kernel("GATED_DELTA_NET", scratch=scratch, prepare=(start_units,))
def gated_delta_net_f32(p, ith, nth):
    size, n_head, n_tokens = v.ne(p, V, 0), v.ne(p, V, 1), v.ne(p, V, 2)
    heads = n_head * v.ne(p, V, 3)
    parts = parts_of(heads, size, nth)
    n_slots = v.op_i32(p, 0)
    n_chunks = max(0, n_tokens - n_slots if n_slots > 1 else n_tokens) // CHUNK
    if size > MAX_SIZE or n_chunks < MIN_CHUNKS:
        n_chunks = 0
    u = next_unit(p)
    while u < heads * parts:
        head, seq = u // parts % n_head, u // (parts * n_head)
        first, stop = v.split_by(size, LANES, u % parts, parts)
        if n_tokens == 0:
            keep_rows(p, head, seq, first, stop)
        if n_chunks > 0:
            run_chunks(p, head, seq, first, stop, n_chunks, v.local(p, ith))
        run_tokens(p, head, seq, first, stop, n_chunks * CHUNK, v.local(p, ith))
        u = next_unit(p)
