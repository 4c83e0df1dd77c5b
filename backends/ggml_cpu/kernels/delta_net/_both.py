"""GATED_DELTA_NET over a few tokens: LANES rows of a state of the usual size, in two halves.

Sums along a row come late, and the next token needs the state that they make. So the products of
one half run while the sums of the other are found, and its update while those of this one are. The
numbers are those of _tokens.py, which has all other sizes.
"""

from __future__ import annotations

from ggml_cpu import vocabulary as v
from ggml_cpu.kernel import Function, fn, routine
from ggml_cpu.kernels._common import padded
from ggml_cpu.kernels._sums import lane_sums
from ggml_cpu.target import LANES

SIZE = 128  # of a row
ROW = 4 * SIZE
WORD = 4 * LANES  # bytes of a vector
HALF = LANES // 2
APART = ROW * HALF + 64 * 9  # bytes between halves in scratch: not a page, where they seem the same
VECTOR = 4 * padded(SIZE)
QUERIES, DECAYS, KEYS = VECTOR, 2 * VECTOR, 3 * VECTOR  # in a token's table, behind decayed keys


def _products(ahead: bool) -> Function:
    """ahead: HALF rows that come later are fetched, in the order of their addresses."""

    @fn
    def products(rows, table, later):
        """Of HALF rows with the decayed keys, then with the decayed queries. -> LANES sums"""
        sums = v.f32_regs(LANES)
        for i in range(0, ROW, WORD):
            x, y = v.f32_load(table + i), v.f32_load(table + QUERIES + i)
            for r in range(HALF):
                if ahead:
                    v.prefetch(later + HALF * i + WORD * r)
                m = v.f32_load(rows + ROW * r + i)
                sums[r] = v.fma(m, x, sums[r])
                sums[HALF + r] = v.fma(m, y, sums[HALF + r])
        return lane_sums(sums)

    return products


def _update(kept: bool) -> Function:
    """kept: the new rows are stored a second time, past the caches."""

    @fn
    def update(rows, table, delta, new, also):
        """HALF rows decayed, and delta times the keys added."""
        for i in range(0, ROW, WORD):
            x, c = v.f32_load(table + KEYS + i), v.f32_load(table + DECAYS + i)
            for r in range(HALF):
                m = v.f32_load(rows + ROW * r + i)
                m = v.fma(v.f32(v.lane(delta, r)), x, m * c)
                v.store(new + ROW * r + i, m)
                if kept:
                    v.store_nt(also + ROW * r + i, m)

    return update


def _step(ahead: bool, kept: bool) -> Function:
    products, update = _products(ahead), _update(kept)

    @routine
    def step(rows, second, later, new, other, also, table, values, beta, kq, out):
        """LANES rows over a token: HALF from `rows` and HALF from `second`, to `new` and `other`.

        later   what is fetched meanwhile;  also  where the new rows go besides, as they follow
        table   its decayed keys, decayed queries, decays and keys
        values, beta, kq  its values for these rows, beta, and <k, q>
        """
        found = products(rows, table, later)
        others = products(second, table, later + ROW * HALF)
        wanted = v.f32_load(values)
        delta = (v.low(wanted) - v.low(found)) * beta
        v.store(out, v.high(found) + delta * kq)
        update(rows, table, delta, new, also)
        delta = (v.high(wanted) - v.low(others)) * beta
        v.store(out + 4 * HALF, v.high(others) + delta * kq)
        update(second, table, delta, other, also + ROW * HALF)

    return step


first, later_on = _step(True, False), _step(False, False)
first_kept, later_kept = _step(True, True), _step(False, True)


@fn
def step_both(rows, second, later, new, other, also, table, values, beta, kq, out):
    """later, also: 0 for nothing."""
    if later != 0 and also != 0:
        first_kept(rows, second, later, new, other, also, table, values, beta, kq, out)
    elif later != 0:
        first(rows, second, later, new, other, 0, table, values, beta, kq, out)
    elif also != 0:
        later_kept(rows, second, 0, new, other, also, table, values, beta, kq, out)
    else:
        later_on(rows, second, 0, new, other, 0, table, values, beta, kq, out)
