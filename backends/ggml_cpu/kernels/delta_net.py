"""The gated delta rule, token by token, on blocks of the state that stay in the L1 cache.

State rows M[j] (key index fast) are independent, so a unit of work is a block of rows of one head,
over all tokens. With e the decay (one number, or one per key channel):

    delta[j] = (v[j] - <M[j], e k>) beta;   o[j] = (<M[j], e q> + delta[j] <k, q>) / sqrt(S)
    M[j] = e M[j] + delta[j] k
"""

from __future__ import annotations

from ggml_cpu import vocabulary as v
from ggml_cpu.kernel import fn, kernel
from ggml_cpu.kernels.copy import copy_bytes
from ggml_py.tensor import Tensor

ROWS = 32  # state rows of a unit
AT_ONCE = 4  # rows that share each load of k and q


def scratch(node: Tensor, nth: int) -> tuple[int, int]:
    """A block of state, and three rows of factors."""
    size = node.src[2].ne[0]
    return 0, 4 * size * (ROWS + 3)


@fn
def scalar_factors(k, q, g, size, ek, eq):
    """e k and e q / sqrt(S) for one decay; -> (e, <k, q> / sqrt(S))"""
    scale = 1.0 / v.sqrtf(size)
    e = v.expf(v.ld_f32(g))
    both = v.float32(e * scale)
    kq = v.f32(0.0)
    for i in range(0, size, v.LANES):
        x, y = v.f32_load_n(k + 4 * i, size - i), v.f32_load_n(q + 4 * i, size - i)
        v.store_n(ek + 4 * i, x * e, size - i)
        v.store_n(eq + 4 * i, y * both, size - i)
        kq = v.fma(x, y, kq)
    return e, v.vsum(kq) * scale


@fn
def channel_factors(k, q, g, size, ek, eq):
    """As above with a decay per channel, kept behind eq."""
    scale = v.float32(1.0 / v.sqrtf(size))
    kq = v.f32(0.0)
    for i in range(0, size, v.LANES):
        x, y = v.f32_load_n(k + 4 * i, size - i), v.f32_load_n(q + 4 * i, size - i)
        e = v.vexp(v.f32_load_n(g + 4 * i, size - i))
        v.store_n(ek + 4 * i, x * e, size - i)
        v.store_n(eq + 4 * i, y * e * scale, size - i)
        v.store_n(eq + 4 * (size + i), e, size - i)
        kq = v.fma(x, y, kq)
    return v.float32(1.0), v.vsum(kq) * scale


def _rows(per_channel, count):
    """Advance `count` adjacent state rows by one token."""

    @fn
    def decayed(x, e, decay, i, n):
        """e M of LANES channels."""
        if per_channel:
            return x * v.f32_load_n(e + 4 * i, n)
        return x * decay

    @fn
    def rows(m, size, ek, eq, k, decay, kq, beta, x, o):
        to_k, to_q, delta = v.f32_regs(count), v.f32_regs(count), v.f32_regs(count)
        for i in range(0, size - v.LANES + 1, v.LANES):
            a, b = v.f32_load(ek + 4 * i), v.f32_load(eq + 4 * i)
            for r in range(count):
                y = v.f32_load(m + 4 * (r * size + i))
                to_k[r] = v.fma(y, a, to_k[r])
                to_q[r] = v.fma(y, b, to_q[r])
        tail = size // v.LANES * v.LANES
        if tail < size:
            a, b = v.f32_load_n(ek + 4 * tail, size - tail), v.f32_load_n(eq + 4 * tail, size - tail)
            for r in range(count):
                y = v.f32_load_n(m + 4 * (r * size + tail), size - tail)
                to_k[r] = v.fma(y, a, to_k[r])
                to_q[r] = v.fma(y, b, to_q[r])
        for r in range(count):
            d = (v.ld_f32(x + 4 * r) - v.vsum(to_k[r])) * beta
            v.st_f32(o + 4 * r, v.vsum(to_q[r]) + d * kq)
            delta[r] = v.f32(d)
        e = eq + 4 * size
        for i in range(0, size - v.LANES + 1, v.LANES):
            a = v.f32_load(k + 4 * i)
            for r in range(count):
                to = m + 4 * (r * size + i)
                v.store(to, v.fma(delta[r], a, decayed(v.f32_load(to), e, decay, i, v.LANES)))
        if tail < size:
            n = size - tail
            a = v.f32_load_n(k + 4 * tail, n)
            for r in range(count):
                to = m + 4 * (r * size + tail)
                y = decayed(v.f32_load_n(to, n), e, decay, tail, n)
                v.store_n(to, v.fma(delta[r], a, y), n)

    return rows


def unit_of(per_channel):
    """A block of state rows of one head of one sequence, over all tokens."""
    factors = channel_factors if per_channel else scalar_factors
    many, one = _rows(per_channel, AT_ONCE), _rows(per_channel, 1)

    @fn
    def unit(p, h, b, first, n, m):
        """State rows first..first + n lie in m; leaves outputs in dst and the new rows in m.

        Snapshots of the state are written to dst, slot i after the last token but i.
        """
        size, n_head, n_tokens = v.ne(p, 3, 0), v.ne(p, 3, 1), v.ne(p, 3, 2)
        n_seqs, n_slots = v.ne(p, 3, 3), v.op_i32(p, 0)
        kh, kb = h % v.ne(p, 1, 1), b // (n_seqs // v.ne(p, 1, 3))
        q = v.data(p, 1) + kh * v.nb(p, 1, 1) + kb * v.nb(p, 1, 3)
        k = v.data(p, 2) + kh * v.nb(p, 2, 1) + kb * v.nb(p, 2, 3)
        x = v.data(p, 3) + h * v.nb(p, 3, 1) + b * v.nb(p, 3, 3) + 4 * first
        ek = m + 4 * ROWS * size
        eq = ek + 4 * size
        for t in range(n_tokens):
            at = (b * n_tokens + t) * n_head + h
            row = k + t * v.nb(p, 2, 2)
            g = v.data(p, 4) + 4 * at * v.ne(p, 4, 0)
            decay, kq = factors(row, q + t * v.nb(p, 1, 2), g, size, ek, eq)
            beta = v.ld_f32(v.data(p, 5) + 4 * at)
            o, y = v.data(p, 0) + 4 * (at * size + first), x + t * v.nb(p, 3, 2)
            j = 0
            while j + AT_ONCE <= n:
                many(m + 4 * j * size, size, ek, eq, row, decay, kq, beta, y + 4 * j, o + 4 * j)
                j += AT_ONCE
            while j < n:
                one(m + 4 * j * size, size, ek, eq, row, decay, kq, beta, y + 4 * j, o + 4 * j)
                j += 1
            slot = n_tokens - 1 - t
            if 0 < slot < n_slots:
                copy_bytes(slot_rows(p, slot, h, b, first), m, 4 * n * size)

    return unit


@fn
def slot_rows(p, slot, h, b, first):
    """Address of state rows in snapshot `slot` of dst."""
    size, n_head, n_seqs = v.ne(p, 3, 0), v.ne(p, 3, 1), v.ne(p, 3, 3)
    outputs = size * n_head * v.ne(p, 3, 2) * n_seqs
    heads = (slot * n_seqs + b) * n_head + h
    return v.data(p, 0) + 4 * (outputs + (heads * size + first) * size)


def _gated_delta_net(per_channel):
    unit = unit_of(per_channel)

    def when(node: Tensor) -> str:
        found = node.src[3].ne[0] > 1 or node.src[2].ne[0] == 1
        return "" if found == per_channel else "needs the other kind of gate"

    name = "channel" if per_channel else "scalar"

    @kernel("GATED_DELTA_NET", when=when, scratch=scratch, name=f"gated_delta_net_{name}")
    def gated_delta_net(p, ith, nth):
        size, n_head = v.ne(p, 3, 0), v.ne(p, 3, 1)
        blocks = (size + ROWS - 1) // ROWS
        m = v.local(p, ith)
        start, stop = v.split(blocks * n_head * v.ne(p, 3, 3), ith, nth)
        for u in range(start, stop):
            first, head = u % blocks * ROWS, u // blocks
            n = min(ROWS, size - first)
            h, b = head % n_head, head // n_head
            copy_bytes(m, v.data(p, 6) + 4 * (head * size + first) * size, 4 * n * size)
            unit(p, h, b, first, n, m)
            copy_bytes(slot_rows(p, 0, h, b, first), m, 4 * n * size)

    return gated_delta_net


for _per_channel in (False, True):
    _gated_delta_net(_per_channel)
