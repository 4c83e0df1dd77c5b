"""SSM_SCAN: the selective scans of Mamba-1 and Mamba-2.

All heads of a group, one below the other, are rows of states: row r is element r % dim of head
r // dim. Rows are independent; a thread takes LANES of them over all tokens, so that their states
stay in the L1 cache.
"""

from __future__ import annotations

from ggml_cpu import vocabulary as v
from ggml_cpu.kernel import fn, kernel
from ggml_cpu.kernels.common import types_are
from ggml_cpu.kernels.sums import lane_sums
from ggml_cpu.target import LANES
from ggml_py.tensor import Tensor

S, X, DT, A, B, C, IDS = 1, 2, 3, 4, 5, 6, 7
WORD = 4 * LANES  # bytes of a vector


def scratch(node: Tensor, nth: int) -> tuple[int, int]:
    """Per thread, a vector each: heads of the rows, then their steps, inputs and decays."""
    return 0, 4 * WORD


@fn
def group_rows(p):
    """Rows of a group: those that share b and c."""
    return v.ne(p, X, 0) * v.ne(p, X, 1) // v.ne(p, B, 1)


@fn
def state_at(p, slot, seq):
    """The states after the token `slot` before the last."""
    size = v.ne(p, S, 0) * v.ne(p, S, 1) * v.ne(p, S, 2)
    outputs = v.ne(p, X, 0) * v.ne(p, X, 1) * v.ne(p, X, 2) * v.ne(p, X, 3)
    return v.data(p, 0) + 4 * (outputs + (slot * v.ne(p, X, 3) + seq) * size)


@fn
def read_token(p, seq, t, row, rows, scratch_at):
    """Steps softplus(dt), inputs x * step and, where a head has one, decays of the rows."""
    heads = v.i32_load(scratch_at)
    dt = v.data(p, DT) + t * v.nb(p, DT, 1) + seq * v.nb(p, DT, 2)
    x = v.data(p, X) + t * v.nb(p, X, 2) + seq * v.nb(p, X, 3) + 4 * row
    step = v.vsoftplus(v.f32_gather(dt, heads))
    v.store(scratch_at + WORD, step)
    v.store(scratch_at + 2 * WORD, v.f32_load_n(x, rows) * step)
    if v.ne(p, A, 0) == 1:
        v.store(scratch_at + 3 * WORD, v.vexp(v.f32_gather(v.data(p, A), heads) * step))


@fn
def scan_rows(b, c, n, rows, old, new, at, y):
    """One token of LANES rows with a decay each; those past the last repeat it."""
    inputs, decays = at + 2 * WORD, at + 3 * WORD
    sums = v.f32_regs(LANES)
    for i in range(0, n, LANES):
        u, w = v.f32_load_n(b + 4 * i, n - i), v.f32_load_n(c + 4 * i, n - i)
        for r in range(LANES):
            j = min(r, rows - 1)
            m = v.f32_load_n(old + 4 * (j * n + i), n - i) * v.f32_bcast(decays + 4 * j)
            m = v.fma(u, v.f32_bcast(inputs + 4 * j), m)
            sums[r] = v.fma(m, w, sums[r])
            if r < rows:
                v.store_n(new + 4 * (r * n + i), m, n - i)
    v.store_n(y, lane_sums(sums), rows)


@fn
def scan_rows_by_state(p, b, c, n, rows, old, new, at, y):
    """One token of `rows` rows with a decay for each state."""
    for r in range(rows):
        step, x = v.f32_bcast(at + WORD + 4 * r), v.f32_bcast(at + 2 * WORD + 4 * r)
        a = v.data(p, A) + v.ld_i32(at + 4 * r) * 4 * n
        total = v.f32(0.0)
        for i in range(0, n, LANES):
            m = v.f32_load_n(old + 4 * (r * n + i), n - i)
            m = m * v.vexp(v.f32_load_n(a + 4 * i, n - i) * step)
            m = v.fma(v.f32_load_n(b + 4 * i, n - i), x, m)
            total = v.fma(m, v.f32_load_n(c + 4 * i, n - i), total)
            v.store_n(new + 4 * (r * n + i), m, n - i)
        v.st_f32(y + 4 * r, v.vsum(total))


@fn
def scan(p, seq, group, row, rows, scratch_at):
    """All tokens of LANES rows or fewer."""
    n, dim, n_tokens, n_slots = v.ne(p, S, 0), v.ne(p, X, 0), v.ne(p, X, 2), v.op_i32(p, 0)
    for r in range(LANES):
        v.st_i32(scratch_at + 4 * r, (row + min(r, rows - 1)) // dim)
    cell = v.ld_i32(v.data(p, IDS) + 4 * seq)
    old = v.data(p, S) + cell * v.nb(p, S, 3) + 4 * row * n
    y = v.data(p, 0) + 4 * (seq * n_tokens * dim * v.ne(p, X, 1) + row)
    for t in range(n_tokens):
        slot = n_tokens - 1 - t
        new = state_at(p, slot if slot < n_slots else 0, seq) + 4 * row * n
        b = v.data(p, B) + group * v.nb(p, B, 1) + t * v.nb(p, B, 2) + seq * v.nb(p, B, 3)
        c = v.data(p, C) + group * v.nb(p, C, 1) + t * v.nb(p, C, 2) + seq * v.nb(p, C, 3)
        read_token(p, seq, t, row, rows, scratch_at)
        if v.ne(p, A, 0) == 1:
            scan_rows(b, c, n, rows, old, new, scratch_at, y)
        else:
            scan_rows_by_state(p, b, c, n, rows, old, new, scratch_at, y)
        old = new
        y += 4 * dim * v.ne(p, X, 1)


@kernel("SSM_SCAN", when=types_are(*["f32"] * 7, "i32"), scratch=scratch)
def ssm_scan_f32(p, ith, nth):
    n_rows, groups = group_rows(p), v.ne(p, B, 1)
    blocks = (n_rows + LANES - 1) // LANES
    start, stop = v.split(blocks * groups * v.ne(p, X, 3), ith, nth)
    for u in range(start, stop):
        first, group = u % blocks * LANES, u // blocks % groups
        rows = min(LANES, n_rows - first)
        scan(p, u // (blocks * groups), group, group * n_rows + first, rows, v.local(p, ith))
