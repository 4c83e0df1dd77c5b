"""RWKV_WKV7: the state is one matrix per head, with one row per value.

Rows are independent. A thread processes LANES rows for all tokens. It updates four rows together,
so each load of a token's vectors serves four rows.
"""

from __future__ import annotations

from ggml_cpu import vocabulary as v
from ggml_cpu.kernel import Function, fn, kernel
from ggml_cpu.kernels._sums import lane_sums
from ggml_cpu.kernels.linear_attention.by_value import (
    initial_state_address,
    per_sequence,
    snapshot_address,
)
from ggml_cpu.target import LANES
from ggml_py.tensor import Tensor

R, W, K, V, A, B, STATE = 1, 2, 3, 4, 5, 6, 7
WORD = 4 * LANES  # bytes of a vector
# Offsets in local scratch for LANES rows: products with a (at 0), values, partial sums; its size.
VALUES, SUMS, LOCAL = WORD, 2 * WORD, (2 + LANES) * WORD


def scratch(node: Tensor, nth: int) -> tuple[int, int]:
    return 0, LOCAL


@fn
def read_vectors(p, at, n):
    """Return up to LANES elements of w, k, b and r; at: byte offset."""
    w, k = v.f32_load_n(v.data(p, W) + at, n), v.f32_load_n(v.data(p, K) + at, n)
    return w, k, v.f32_load_n(v.data(p, B) + at, n), v.f32_load_n(v.data(p, R) + at, n)


@fn
def update_row(m, vectors, local, r):
    """Return the new state of a vector m of row r."""
    w, k, b, _ = vectors
    m = v.fma(v.f32_bcast(local + VALUES + 4 * r), k, m * w)
    return v.fma(v.f32_bcast(local + 4 * r), b, m)


def _rows(count: int) -> tuple[Function, Function]:
    @fn
    def find_removed(a, old, n, sums):
        """Store the dot products of `count` rows with a, as partial sums per lane."""
        total = v.f32_regs(count)
        whole = n // LANES * LANES
        for j in range(0, whole, LANES):
            x = v.f32_load(a + 4 * j)
            for r in range(count):
                total[r] = v.fma(v.f32_load(old + 4 * (r * n + j)), x, total[r])
        if whole < n:
            x = v.f32_load_n(a + 4 * whole, n - whole)
            for r in range(count):
                m = v.f32_load_n(old + 4 * (r * n + whole), n - whole)
                total[r] = v.fma(m, x, total[r])
        for r in range(count):
            v.store(sums + WORD * r, total[r])

    @fn
    def change(p, at, old, new, n, local, sums):
        """Update `count` rows; store partial sums per lane of their dot products with r."""
        total = v.f32_regs(count)
        whole = n // LANES * LANES
        for j in range(0, whole, LANES):
            vectors = read_vectors(p, at + 4 * j, LANES)
            for r in range(count):
                m = update_row(v.f32_load(old + 4 * (r * n + j)), vectors, local, r)
                total[r] = v.fma(m, vectors[3], total[r])
                v.store(new + 4 * (r * n + j), m)
        if whole < n:
            vectors = read_vectors(p, at + 4 * whole, n - whole)
            for r in range(count):
                m = v.f32_load_n(old + 4 * (r * n + whole), n - whole)
                m = update_row(m, vectors, local, r)
                total[r] = v.fma(m, vectors[3], total[r])
                v.store_n(new + 4 * (r * n + whole), m, n - whole)
        for r in range(count):
            v.store(sums + WORD * r, total[r])

    return find_removed, change


find_removed_1, change_1 = _rows(1)
find_removed_4, change_4 = _rows(4)


@fn
def sum_rows(local):
    """Return the horizontal sums of the LANES rows' partial sums."""
    tile = v.f32_regs(LANES)
    for r in range(LANES):
        tile[r] = v.f32_load(local + SUMS + WORD * r)
    return lane_sums(tile)


@fn
def run_token(p, at, row, rows, old, new, local):
    """Process one token for up to LANES rows from `row`; at: byte offset of the token's vectors."""
    n, sums = v.ne(p, R, 0), local + SUMS
    a, four = v.data(p, A) + at, rows // 4 * 4
    for r in range(0, four, 4):
        find_removed_4(a, old + 4 * r * n, n, sums + WORD * r)
    for r in range(four, rows):
        find_removed_1(a, old + 4 * r * n, n, sums + WORD * r)
    v.store(local, sum_rows(local))
    v.store(local + VALUES, v.f32_load_n(v.data(p, V) + at + 4 * row, rows))
    for r in range(0, four, 4):
        shift = 4 * r * n
        change_4(p, at, old + shift, new + shift, n, local + 4 * r, sums + WORD * r)
    for r in range(four, rows):
        shift = 4 * r * n
        change_1(p, at, old + shift, new + shift, n, local + 4 * r, sums + WORD * r)
    v.store_n(v.data(p, 0) + at + 4 * row, sum_rows(local), rows)


@kernel("RWKV_WKV7", scratch=scratch)
def rwkv_wkv7_f32(p, ith, nth):
    size, n_head, n_tokens = v.ne(p, R, 0), v.ne(p, R, 1), per_sequence(p, R, STATE)
    blocks, n_slots = (size + LANES - 1) // LANES, v.op_i32(p, 0) + 1
    start, stop = v.split(blocks * n_head * v.ne(p, STATE, 1), ith, nth)
    for u in range(start, stop):
        row, head, seq = u % blocks * LANES, u // blocks % n_head, u // (blocks * n_head)
        old = initial_state_address(p, STATE, head, seq) + 4 * row * size
        for t in range(n_tokens):
            slot = n_tokens - 1 - t
            new = snapshot_address(p, STATE + 1, slot if slot < n_slots else 0, head, seq)
            new += 4 * row * size
            at = 4 * size * ((seq * n_tokens + t) * n_head + head)
            run_token(p, at, row, min(LANES, size - row), old, new, v.local(p, ith))
            old = new
