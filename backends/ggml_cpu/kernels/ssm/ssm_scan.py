"""SSM_SCAN: the selective scans of Mamba-1 and Mamba-2.

The heads of a group form rows of states: row r is element r % dim of head r // dim. Rows are
independent. A thread processes LANES rows for all tokens, so their states remain in the L1 cache.
"""

from __future__ import annotations

from ggml_cpu import vocabulary as v
from ggml_cpu.faults import index_or_0
from ggml_cpu.kernel import Function, fn, kernel
from ggml_cpu.kernels._common import types_are
from ggml_cpu.kernels._moves import copy_bytes
from ggml_cpu.kernels._states import is_overwritten, state_address
from ggml_cpu.kernels._sums import lane_sums
from ggml_cpu.target import LANES
from ggml_py.tensor import Tensor

S, X, DT, A, B, C, IDS, TARGET = 1, 2, 3, 4, 5, 6, 7, 8
WORD = 4 * LANES  # bytes of a vector
# Offsets in local scratch: heads of the rows (at 0), inputs, decays, partial sums; its size.
INPUT, DECAY, SUMS, LOCAL = WORD, 2 * WORD, 3 * WORD, (3 + LANES) * WORD


@fn
def steps_bytes(n_head: int, n_tokens: int, n_seqs: int) -> int:
    """Return the bytes of all time steps in shared scratch; the decays follow, equal in size."""
    return 4 * n_head * n_tokens * n_seqs


def scratch(node: Tensor, nth: int) -> tuple[int, int]:
    return 2 * steps_bytes(*node.source(1).ne[1:]), LOCAL


@fn
def steps_address(p, seq, t):
    """Return the address of a token's time steps, f32 [H]; decays: `decays_offset` bytes later."""
    return v.shared(p) + 4 * (seq * v.ne(p, X, 2) + t) * v.ne(p, X, 1)


@fn
def decays_offset(p):
    return steps_bytes(v.ne(p, X, 1), v.ne(p, X, 2), v.ne(p, X, 3))


@kernel()
def ssm_steps(p, ith, nth):
    """Compute step = softplus(dt) for all heads and tokens.

    Also compute decay = exp(a * step) if there is one decay per head (Mamba-2).
    """
    n_head, n_tokens = v.ne(p, X, 1), v.ne(p, X, 2)
    start, stop = v.split(n_tokens * v.ne(p, X, 3), ith, nth)
    for u in range(start, stop):
        t, seq = u % n_tokens, u // n_tokens
        dt, to = v.data(p, DT) + t * v.nb(p, DT, 1) + seq * v.nb(p, DT, 2), steps_address(p, seq, t)
        for h in range(0, n_head, LANES):
            step = v.vsoftplus(v.f32_load_n(dt + 4 * h, n_head - h))
            v.store_n(to + 4 * h, step, n_head - h)
            if v.ne(p, A, 0) == 1:
                decay = v.vexp(v.f32_load_n(v.data(p, A) + 4 * h, n_head - h) * step)
                v.store_n(to + decays_offset(p) + 4 * h, decay, n_head - h)


@fn
def group_rows(p):
    """Return the number of rows per group; the rows of a group share b and c."""
    return v.ne(p, X, 0) * v.ne(p, X, 1) // v.ne(p, B, 1)


@fn
def state_size(p):
    """Return the elements of a sequence's states, all heads together."""
    return v.ne(p, S, 0) * v.ne(p, S, 1) * v.ne(p, S, 2)


@fn
def behind_outputs(p, slot, seq):
    outputs = v.ne(p, X, 0) * v.ne(p, X, 1) * v.ne(p, X, 2) * v.ne(p, X, 3)
    return v.data(p, 0) + 4 * (outputs + (slot * v.ne(p, X, 3) + seq) * state_size(p))


@fn
def snapshot_address(p, slot, seq):
    """Return the address for a sequence's states `slot` tokens before the last."""
    if v.data(p, TARGET) != 0:
        return state_address(p, TARGET, slot, seq, state_size(p), v.ne(p, X, 3))
    return behind_outputs(p, slot, seq)


@fn
def cell_address(p, seq):
    """Return the address of a sequence's initial states."""
    cell = v.ld_i32(v.data(p, IDS) + 4 * seq)
    return v.data(p, S) + index_or_0(p, cell, v.ne(p, S, 3)) * v.nb(p, S, 3)


@fn
def comes_too_late(p, seq):
    """Return True if another sequence's states overwrite the initial states of `seq`."""
    n_seqs, n_slots = v.ne(p, X, 3), min(v.ne(p, X, 2), v.op_i32(p, 0))
    if v.data(p, TARGET) == 0 or n_seqs == 1:
        return False
    return is_overwritten(p, TARGET, cell_address(p, seq), seq, state_size(p), n_seqs, n_slots)


@kernel()
def keep_sources(p, ith, nth):
    """Save initial states that another sequence would overwrite.

    They are copied to the space for states after the outputs. This step runs before states are
    written to the cache that holds the initial states.
    """
    start, stop = v.split(state_size(p), ith, nth)
    for seq in range(v.ne(p, X, 3)):
        if comes_too_late(p, seq):
            to = behind_outputs(p, 0, seq) + 4 * start
            copy_bytes(to, cell_address(p, seq) + 4 * start, 4 * (stop - start))


@fn
def initial_state_address(p, seq):
    return behind_outputs(p, 0, seq) if comes_too_late(p, seq) else cell_address(p, seq)


@fn
def read_token(p, seq, t, row, rows, local):
    """Store the rows' inputs x * step in local scratch, and their decays if computed per head."""
    heads, steps = v.i32_load(local), steps_address(p, seq, t)
    x = v.data(p, X) + t * v.nb(p, X, 2) + seq * v.nb(p, X, 3) + 4 * row
    v.store(local + INPUT, v.f32_load_n(x, rows) * v.f32_gather(steps, heads))
    if v.ne(p, A, 0) == 1:
        v.store(local + DECAY, v.f32_gather(steps + decays_offset(p), heads))


def _scan_rows(count: int) -> Function:
    @fn
    def scan_rows(b, c, n, old, new, local, sums):
        """Process one token for `count` rows, with one decay per row (Mamba-2).

        Dot products with c are stored at `sums`, as partial sums per lane.
        """
        total = v.f32_regs(count)
        whole = n // LANES * LANES
        for i in range(0, whole, LANES):
            u, w = v.f32_load(b + 4 * i), v.f32_load(c + 4 * i)
            for r in range(count):
                m = v.f32_load(old + 4 * (r * n + i)) * v.f32_bcast(local + DECAY + 4 * r)
                m = v.fma(u, v.f32_bcast(local + INPUT + 4 * r), m)
                total[r] = v.fma(m, w, total[r])
                v.store(new + 4 * (r * n + i), m)
        if whole < n:
            rest = n - whole
            u, w = v.f32_load_n(b + 4 * whole, rest), v.f32_load_n(c + 4 * whole, rest)
            for r in range(count):
                m = v.f32_load_n(old + 4 * (r * n + whole), rest)
                m = m * v.f32_bcast(local + DECAY + 4 * r)
                m = v.fma(u, v.f32_bcast(local + INPUT + 4 * r), m)
                total[r] = v.fma(m, w, total[r])
                v.store_n(new + 4 * (r * n + whole), m, rest)
        for r in range(count):
            v.store(sums + WORD * r, total[r])

    return scan_rows


scan_1, scan_4 = _scan_rows(1), _scan_rows(4)


@fn
def scan_by_row(b, c, n, rows, old, new, local, y):
    """Process one token for up to LANES rows, with one decay per row (Mamba-2)."""
    sums = local + SUMS
    r = 0
    while r + 4 <= rows:
        scan_4(b, c, n, old + 4 * r * n, new + 4 * r * n, local + 4 * r, sums + WORD * r)
        r += 4
    while r < rows:
        scan_1(b, c, n, old + 4 * r * n, new + 4 * r * n, local + 4 * r, sums + WORD * r)
        r += 1
    tile = v.f32_regs(LANES)
    for j in range(LANES):
        tile[j] = v.f32_load(sums + WORD * j)
    v.store_n(y, lane_sums(tile), rows)


@fn
def scan_by_state(a, b, c, n, rows, old, new, steps, local, y):
    """Process one token for `rows` rows, with one decay per state element (Mamba-1)."""
    for r in range(rows):
        head = v.ld_i32(local + 4 * r)
        step, x = v.f32_bcast(steps + 4 * head), v.f32_bcast(local + INPUT + 4 * r)
        at = a + head * 4 * n
        total = v.f32(0.0)
        for i in range(0, n, LANES):
            m = v.f32_load_n(old + 4 * (r * n + i), n - i)
            m = m * v.vexp(v.f32_load_n(at + 4 * i, n - i) * step)
            m = v.fma(v.f32_load_n(b + 4 * i, n - i), x, m)
            total = v.fma(m, v.f32_load_n(c + 4 * i, n - i), total)
            v.store_n(new + 4 * (r * n + i), m, n - i)
        v.st_f32(y + 4 * r, v.vsum(total))


@fn
def scan_token(p, seq, t, group, row, rows, old, new, local):
    """Compute the states and outputs of the rows for one token."""
    n, dim, n_head = v.ne(p, S, 0), v.ne(p, X, 0), v.ne(p, X, 1)
    b = v.data(p, B) + group * v.nb(p, B, 1) + t * v.nb(p, B, 2) + seq * v.nb(p, B, 3)
    c = v.data(p, C) + group * v.nb(p, C, 1) + t * v.nb(p, C, 2) + seq * v.nb(p, C, 3)
    y = v.data(p, 0) + 4 * ((seq * v.ne(p, X, 2) + t) * dim * n_head + row)
    read_token(p, seq, t, row, rows, local)
    if v.ne(p, A, 0) == 1:
        scan_by_row(b, c, n, rows, old, new, local, y)
    else:
        scan_by_state(v.data(p, A), b, c, n, rows, old, new, steps_address(p, seq, t), local, y)


@fn
def scan(p, seq, group, row, rows, local):
    """Process all tokens for up to LANES rows."""
    n_tokens, n_slots = v.ne(p, X, 2), v.op_i32(p, 0)
    shift = 4 * row * v.ne(p, S, 0)
    for r in range(LANES):
        v.st_i32(local + 4 * r, (row + min(r, rows - 1)) // v.ne(p, X, 0))
    old = initial_state_address(p, seq) + shift
    for t in range(n_tokens):
        slot = n_tokens - 1 - t
        new = snapshot_address(p, slot if slot < n_slots else 0, seq) + shift
        scan_token(p, seq, t, group, row, rows, old, new, local)
        old = new


@kernel("SSM_SCAN", when=types_are(*["f32"] * 7, "i32"), scratch=scratch, prepare=(ssm_steps,))
def ssm_scan_f32(p, ith, nth):
    n_rows, groups = group_rows(p), v.ne(p, B, 1)
    blocks = (n_rows + LANES - 1) // LANES
    start, stop = v.split(blocks * groups * v.ne(p, X, 3), ith, nth)
    for u in range(start, stop):
        first, group = u % blocks * LANES, u // blocks % groups
        rows = min(LANES, n_rows - first)
        scan(p, u // (blocks * groups), group, group * n_rows + first, rows, v.local(p, ith))
