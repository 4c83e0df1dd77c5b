"""COL2IM_1D: add up columns of samples, each `stride` samples after the previous one (overlap-add).

A period is the `stride` samples from a column's first sample on. Kernels sum a block of PERIODS
periods for one channel after the other: they read about PERIODS columns in parallel, each in order.
"""

from __future__ import annotations

from ggml_cpu import vocabulary as v
from ggml_cpu.kernel import fn, kernel
from ggml_cpu.kernels._common import FLOATS, Element, types_are
from ggml_cpu.kernels._moves import fill_words
from ggml_py.tensor import Tensor

PERIODS, CHANNELS = 32, 64  # periods per block, maximum channels per unit of work
NARROW = 4  # minimum stride for vectors along a period; a smaller one fills too few lanes


def narrow_block(node: Tensor, nth: int) -> tuple[int, int]:
    """Return the scratch bytes (shared, local) of COL2IM_1D; local: the sums of a narrow block."""
    return 0, 4 * PERIODS * NARROW


def _col2im(element: Element) -> None:
    ld, load_n, store_n, size = element.ld, element.load_n, element.store_n, element.size

    @fn
    def sum_narrow(d, x, columns, first, begin, end, sums):
        """Write samples begin .. end of a block to d, for small strides.

        Adds sample 0 of all columns, then sample 1, and so on, so that no addition waits for the
        one before. x: address of sample 0 of column 0.
        """
        k, count, apart, stride = columns
        fill_words(sums, PERIODS * stride)
        j, r = first, 0
        for i in range(k):
            for t in range(max(0, j), min(count, j + PERIODS)):
                to = sums + 4 * ((t - j) * stride + r)
                v.st_f32(to, v.ld_f32(to) + ld(x + t * apart + i * size))
            r += 1
            if r == stride:
                j, r = j - 1, 0
        for i in range(begin, end, v.LANES):
            store_n(d + i * size, v.f32_load_n(sums + 4 * i, end - i), end - i)

    @fn
    def sum_wide(d, x, columns, q, begin, end):
        """Write samples begin .. end of period q to d by vectors; add the last column first."""
        k, count, apart, stride = columns
        newest = max(0, q - count + 1)
        for r in range(begin, end, v.LANES):
            total = v.f32(0.0)
            i, s = newest * stride + r, x + (q - newest) * apart
            while i < k and s >= x:
                total = total + load_n(s + i * size, min(end - r, k - i))
                i, s = i + stride, s - apart
            store_n(d + r * size, total, end - r)

    @kernel(
        "COL2IM_1D",
        when=types_are(element.name, element.name),
        scratch=narrow_block,
        name=f"col2im_1d_{element.name}",
    )
    def col2im(p, ith, nth):
        stride, oc, p0 = v.op_i32(p, 0), v.op_i32(p, 1), v.op_i32(p, 2)
        n, k = v.ne(p, 0, 0), v.ne(p, 1, 0) // oc
        columns = (k, v.ne(p, 1, 1), v.nb(p, 1, 1), stride)
        groups, block = (oc + CHANNELS - 1) // CHANNELS, PERIODS * stride
        start, stop = v.split((n + p0 + block - 1) // block * groups, ith, nth)
        for u in range(start, stop):
            first, group = u // groups * PERIODS, u % groups * CHANNELS
            for c in range(group, min(oc, group + CHANNELS)):
                x, d = v.data(p, 1) + c * k * size, v.data(p, 0) + c * v.nb(p, 0, 1)
                at = first * stride - p0
                if stride < NARROW:
                    end = min(block, n - at)
                    sum_narrow(d + at * size, x, columns, first, max(0, -at), end, v.local(p, ith))
                else:
                    for q in range(first, first + PERIODS):
                        end = min(stride, n - at)
                        sum_wide(d + at * size, x, columns, q, max(0, -at), end)
                        at += stride


for _element in FLOATS:
    _col2im(_element)
