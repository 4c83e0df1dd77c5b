"""GATED_DELTA_NET over a few tokens: LANES rows of a state of row size 128, in two halves.

The horizontal sum of a row has a long latency, and the next token needs the state computed from
this sum. Two halves hide the latency: the sums of the first half overlap with the dot products of
the second, and the sums of the second with the update of the first. The results are identical to
_tokens.py, which handles all other sizes.
"""

from __future__ import annotations

from ggml_cpu import vocabulary as v
from ggml_cpu.kernel import Function, fn, routine
from ggml_cpu.kernels._common import pad_to_lanes
from ggml_cpu.kernels._sums import lane_sums
from ggml_cpu.target import LANES

SIZE = 128  # elements per state row
ROW = 4 * SIZE
WORD = 4 * LANES  # bytes of a vector
HALF = LANES // 2
APART = ROW * HALF + 64 * 9  # bytes between halves in scratch; no multiple of 4 KiB (4K aliasing)
VECTOR = 4 * pad_to_lanes(SIZE)
QUERIES, DECAYS, KEYS = VECTOR, 2 * VECTOR, 3 * VECTOR  # offsets in a token's table


def _products(ahead: bool) -> Function:
    """Return products(rows, table, later).

    ahead: also prefetch the HALF rows at `later`, in address order.
    """

    @fn
    def products(rows, table, later):
        """Return LANES dot products.

        These are HALF rows times the decayed keys, then times the decayed queries.
        """
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
    """Return update(rows, table, delta, new, also).

    kept: also store the new rows at `also`, with non-temporal stores.
    """

    @fn
    def update(rows, table, delta, new, also):
        """Store new = rows * decays + delta * keys, for HALF rows."""
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
        """Update LANES rows by one token and store their outputs at `out`.

        Args:
            rows, second: Addresses of HALF rows each.
            later: Address of LANES rows to prefetch.
            new, other: Destinations of the two halves.
            also: Second destination of all LANES rows, contiguous.
            table: The token's decayed keys, decayed queries, decays and keys.
            values: The token's values, one per row.
            beta, kq: The token's beta, and <k, q>.
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
    """Call the variant of `step` for `later` and `also`; 0: no prefetch, no second destination."""
    if later != 0 and also != 0:
        first_kept(rows, second, later, new, other, also, table, values, beta, kq, out)
    elif later != 0:
        first(rows, second, later, new, other, 0, table, values, beta, kq, out)
    elif also != 0:
        later_kept(rows, second, 0, new, other, also, table, values, beta, kq, out)
    else:
        later_on(rows, second, 0, new, other, 0, table, values, beta, kq, out)
