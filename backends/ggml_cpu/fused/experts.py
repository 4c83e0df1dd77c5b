"""Weighted sum of a token's experts: MUL by the weights, then one ADD per expert."""

from __future__ import annotations

from ggml_cpu import vocabulary as v
from ggml_cpu.fusion import fuse
from ggml_cpu.kernel import kernel
from ggml_cpu.kernels._common import CHUNK, count_chunks
from ggml_cpu.step import Step
from ggml_py.fusion import f32_rows
from ggml_py.fusion.pattern import Match
from ggml_py.patterns.experts import EXPERT_SUM


@kernel()
def weighted_sum(p, ith, nth):
    """dst[:, t] = sum_e src0[:, e, t] * src1[0, e, t]."""
    n, n_used = v.ne(p, 0, 0), v.ne(p, 1, 1)
    pieces = count_chunks(n)
    start, stop = v.split(v.ne(p, 0, 1) * pieces, ith, nth)
    for u in range(start, stop):
        t, c = u // pieces, u % pieces * CHUNK
        x, w = v.data(p, 1) + t * v.nb(p, 1, 2), v.data(p, 2) + t * v.nb(p, 2, 2)
        d = v.data(p, 0) + t * v.nb(p, 0, 1)
        end = min(n, c + CHUNK)
        while c < end:
            y = v.f32_load_n(x + 4 * c, end - c) * v.ld_f32(w)
            for e in range(1, n_used):
                z = v.f32_load_n(x + e * v.nb(p, 1, 1) + 4 * c, end - c)
                y = y + z * v.ld_f32(w + e * v.nb(p, 2, 1))
            v.store_n(d + 4 * c, y, end - c)
            c += v.LANES


@fuse(EXPERT_SUM, when=f32_rows("x", "weights"))
def expert_sum(m: Match) -> list[Step]:
    return [Step(weighted_sum, m["sum"], (m["sum"], m["x"], m["weights"]))]
