"""GATED_DELTA_NET, one token at a time: a vector holds LANES keys of one row of the state."""

from __future__ import annotations

from ggml_cpu import vocabulary as v
from ggml_cpu.kernel import fn, routine
from ggml_cpu.kernels._sums import lane_sums
from ggml_cpu.kernels.delta_net._both import APART, SIZE, step_both
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
    snapshot_address,
    value_address,
    vector_bytes,
)
from ggml_cpu.target import LANES

WORD = 4 * LANES  # bytes of a vector
HALF = LANES // 2  # rows of the state processed together
AHEAD = 2 * 4 * HALF  # prefetch distance in the state, bytes per key: 2 * HALF rows
GROUP = 8  # consecutive tokens per group of rows


@fn
def table_bytes(size: int) -> int:
    """Return the bytes of a token's table: decayed keys, decayed queries, decays and keys."""
    return 4 * vector_bytes(size)


@fn
def rows_address(local: int, size: int) -> int:
    """Return the address of intermediate state rows in local scratch.

    These are LANES rows in two halves, APART bytes from each other. The tables of GROUP tokens and
    their <k, q> precede them.
    """
    return local + GROUP * table_bytes(size) + (4 * GROUP + 63) // 64 * 64


def local_bytes(size: int) -> int:
    return rows_address(0, size) + max(APART, HALF * vector_bytes(size)) + HALF * vector_bytes(size)


@routine
def load_token(p, head, seq, t, table):
    """Fill a token's table, with queries scaled by 1 / sqrt(size); return <k, q>, scaled."""
    size = v.ne(p, V, 0)
    keys, queries = table, table + vector_bytes(size)
    decays, plain = queries + vector_bytes(size), queries + 2 * vector_bytes(size)
    scale = 1.0 / v.sqrtf(v.float32(size))
    k, q = key_address(p, K, head, seq, t), key_address(p, Q, head, seq, t)
    total = v.f32(0.0)
    decay = first_decay(p, head, seq, t)
    for i in range(0, size, LANES):
        c = compute_decay(p, head, seq, t, i, decay)
        x = v.f32_load_n(k + 4 * i, size - i)
        y = v.f32_load_n(q + 4 * i, size - i) * scale
        v.store(keys + 4 * i, x * c)
        v.store(queries + 4 * i, y * c)
        v.store(decays + 4 * i, c)
        v.store(plain + 4 * i, x)
        total = v.fma(x, y, total)
    return v.vsum(total)


@routine
def step_rows(p, head, seq, t, first, rows, old, ahead, new, kept, keys, kq):
    """Update up to HALF rows of the state by one token and store their outputs.

    Lanes past `rows` repeat the last row and are not stored.

    Args:
        first: Number of the first row.
        old, new: Source and destination of the first row.
        kept: Second destination of the first row, or 0.
        ahead: Rows to prefetch, in address order; this is 1.5x faster on Zen 4.
        keys: The token's table.
        kq: The token's <k, q>.
    """
    size = v.ne(p, V, 0)
    stride = 4 * size
    queries, decays = keys + vector_bytes(size), keys + 2 * vector_bytes(size)
    sums = v.f32_regs(LANES)
    for i in range(0, size, LANES):
        x, y = v.f32_load(keys + 4 * i), v.f32_load(queries + 4 * i)
        for r in range(HALF):
            v.prefetch(ahead + 4 * (HALF * i + LANES * r))
            m = v.f32_load_n(old + min(r, rows - 1) * stride + 4 * i, size - i)
            sums[r] = v.fma(m, x, sums[r])
            sums[HALF + r] = v.fma(m, y, sums[HALF + r])
    found = lane_sums(sums)
    values = value_address(p, V, head, seq, t) + 4 * first
    wanted = v.low(v.f32_load_n(values, rows))
    delta = (wanted - v.low(found)) * v.ld_f32(value_address(p, B, head, seq, t))
    out = v.high(found) + delta * kq
    v.store_n(output_address(p, head, seq, t) + 4 * first, out, rows)
    k = key_address(p, K, head, seq, t)
    past_caches = kept % WORD == 0 and size % LANES == 0
    for i in range(0, size, LANES):
        x, c = v.f32_load_n(k + 4 * i, size - i), v.f32_load(decays + 4 * i)
        for r in range(HALF):
            if r < rows:
                m = v.f32_load_n(old + r * stride + 4 * i, size - i)
                m = v.fma(v.f32(v.lane(delta, r)), x, m * c)
                v.store_n(new + r * stride + 4 * i, m, size - i)
                if kept != 0:
                    if past_caches:
                        v.store_nt(kept + r * stride + 4 * i, m)
                    else:
                        v.store_n(kept + r * stride + 4 * i, m, size - i)


@fn
def pass_group(p, head, seq, first, rows, t, count, old, local):
    """Process up to HALF rows of a head, at `old`, for `count` tokens from t.

    The rows remain in the L1 cache between tokens. Snapshots for rollback are rarely read, so they
    are written with non-temporal stores if they are aligned.
    """
    size, n_tokens, n_slots = v.ne(p, V, 0), v.ne(p, V, 2), v.op_i32(p, 0)
    ahead = old + AHEAD * size  # the hardware prefetcher does not cross pages
    step, row = table_bytes(size), 4 * size * first
    totals, between = local + GROUP * step, rows_address(local, size)
    for i in range(count):
        slot, kept, new = n_tokens - 1 - t - i, 0, between
        if slot > 0 and slot < n_slots:
            kept = snapshot_address(p, slot, head, seq) + row
        if i == count - 1:
            new = snapshot_address(p, 0, head, seq) + row
        kq = v.ld_f32(totals + 4 * i)
        step_rows(p, head, seq, t + i, first, rows, old, ahead, new, kept, local + i * step, kq)
        old = new


@fn
def keeps_whole_lines(p, head, seq):
    """Return True if all snapshots are aligned to WORD, as non-temporal stores require."""
    for slot in range(1, min(v.op_i32(p, 0), v.ne(p, V, 2))):
        if snapshot_address(p, slot, head, seq) % WORD != 0:
            return False
    return True


@fn
def pass_both(p, head, seq, first, t, count, old, local):
    """Process LANES rows of SIZE elements like `pass_group`, in two halves (_both.py)."""
    n_tokens, n_slots = v.ne(p, V, 2), v.op_i32(p, 0)
    step, row, between = table_bytes(SIZE), 4 * SIZE * first, rows_address(local, SIZE)
    second, half = old + 4 * SIZE * HALF, 4 * SIZE * HALF
    for i in range(count):
        slot, also, new, other, later = n_tokens - 1 - t - i, 0, between, between + APART, 0
        if slot > 0 and slot < n_slots:
            also = snapshot_address(p, slot, head, seq) + row
        if i == 0:
            later = old + AHEAD * SIZE
        if i == count - 1:
            new = snapshot_address(p, 0, head, seq) + row
            other = new + half
        kq = v.ld_f32(local + GROUP * step + 4 * i)
        beta = v.ld_f32(value_address(p, B, head, seq, t + i))
        values = value_address(p, V, head, seq, t + i) + 4 * first
        out = output_address(p, head, seq, t + i) + 4 * first
        table = local + i * step
        step_both(old, second, later, new, other, also, table, values, beta, kq, out)
        old, second = new, other


@fn
def fetch_outputs(p, head, seq, first, stop, t, count):
    """Prefetch the cache lines of the outputs for writing.

    Another core may have written them last; a store to such a line delays all later stores.
    """
    for i in range(t, t + count):
        out = output_address(p, head, seq, i)
        for j in range(4 * first, 4 * stop, 64):
            v.prefetch_write(out + j)


@fn
def run_tokens(p, head, seq, first, stop, start, local):
    """Process rows first..stop of a head for the tokens from `start`."""
    size, n_tokens = v.ne(p, V, 0), v.ne(p, V, 2)
    step = table_bytes(size)
    for t in range(start, n_tokens, GROUP):
        count = min(GROUP, n_tokens - t)
        fetch_outputs(p, head, seq, first, stop, t, count)
        for i in range(count):
            kq = load_token(p, head, seq, t + i, local + i * step)
            v.st_f32(local + GROUP * step + 4 * i, kq)
        old = initial_state_address(p, head, seq) if t == 0 else snapshot_address(p, 0, head, seq)
        r, both = first, count > 1 and size == SIZE and keeps_whole_lines(p, head, seq)
        while r < stop:
            at = old + 4 * size * r
            if both and stop - r >= LANES:
                pass_both(p, head, seq, r, t, count, at, local)
                r += LANES
            else:
                pass_group(p, head, seq, r, min(HALF, stop - r), t, count, at, local)
                r += HALF
