"""One kernel per quantizer: converts rows of f32 to rows of blocks, 16 blocks at a time.

dst        blocks [n_per_row, n_rows]
src0       f32 [n_per_row, n_rows]
src1       importance f32 [n_per_row], optional
extra 0..  addresses of a codebook's tables
"""

from __future__ import annotations

from ggml_cpu import vocabulary as v
from ggml_cpu.kernel import Function, Kernel, fn, kernel
from ggml_cpu.quantize.format import Quantizer
from ggml_cpu.quantize.lanes import (
    BYTES,
    LANES,
    MEMORY,
    SIGMA,
    SPARE,
    SUMS,
    TABLES,
    W,
    X,
    mul,
    put,
    put_half,
)
from ggml_cpu.quantize.types import quantizers

COUNT = b"".join(i.to_bytes(4, "little") for i in range(LANES))  # lanes 0, 1, 2, ...


@fn
def mean_squares(src, n_per_row, n_rows, to):
    """Store the mean square of every row."""
    for first in range(0, n_rows, LANES):
        lanes = v.vmin(v.i32x16_load(v.table(COUNT)), v.i32x16(n_rows - 1 - first))
        rows, total = lanes * n_per_row, v.f32x16(0.0)
        for i in range(n_per_row):
            x = v.f32_gather(src + 4 * (first * n_per_row + i), rows)
            total = total + mul(x, x)
        v.store(to + 4 * first, total / v.float32(n_per_row))


def _rows(quantizer: Quantizer, make: Function, weighted: bool) -> Kernel:
    values, size = quantizer.type.block_size, quantizer.type.type_size
    by_row = weighted and quantizer.by_row

    @fn
    def load(m, src, importance, means, first, n, n_per_row):
        """Load blocks first .. first + n - 1: values to X, importance to W, row means to SIGMA."""
        lanes = v.vmin(v.i32x16_load(v.table(COUNT)), v.i32x16(n - 1))
        at = lanes * values
        for i in range(values):
            put(m + X, i, v.f32_gather(src + 4 * (first * values + i), at))
        if weighted:
            per_row = n_per_row // values
            for lane in range(LANES):
                block = first + min(lane, n - 1)
                v.st_i32(m + SIGMA + 4 * lane, block % per_row * values)
                v.st_i32(m + SPARE + 4 * lane, block // per_row)
            within, rows = v.i32x16_load(m + SIGMA), v.i32x16_load(m + SPARE)
            for i in range(values):
                put(m + W, i, v.f32_gather(importance + 4 * i, within))
            if by_row:
                v.store(m + SIGMA, v.f32_gather(means, rows))

    @kernel(name=f"quantize_{quantizer.type.name}{'_weighted' if weighted else ''}")
    def quantize(p, ith, nth):
        n_per_row, m = v.ne(p, 1, 0), v.local(p, ith)
        dst, src, importance = v.data(p, 0), v.data(p, 1), v.data(p, 2)
        for i in range(3):
            v.st_i64(m + TABLES + 8 * i, v.extra(p, i))
        blocks = n_per_row // values * v.ne(p, 1, 1)
        if by_row:
            mean_squares(src, n_per_row, v.ne(p, 1, 1), v.shared(p))
        for first in range(0, blocks, LANES):
            n = min(LANES, blocks - first)
            load(m, src, importance, v.shared(p), first, n, n_per_row)
            make(m)
            for lane in range(n):
                to = dst + size * (first + lane)
                for i in range(size):
                    v.st_u8(to + i, v.ld_u8(m + BYTES + LANES * i + lane))

    return quantize


def _whole_rows(quantizer: Quantizer, weigh: Function, weighted: bool) -> Kernel:
    """Return the kernel of a type whose rows begin with their scale, an f16 or f32."""
    assert quantizer.rows is not None
    steps, values = quantizer.rows, quantizer.type.block_size
    search, start, put_block, finish = steps.search, steps.start, steps.put, steps.finish
    head, found_size = steps.head, steps.found_size
    size = quantizer.type.type_size - head

    @fn
    def largest_values(src, lanes, n):
        top = v.f32x16(0.0)
        for i in range(n):
            top = v.vmax(top, v.vabs(v.f32_gather(src + 4 * i, lanes)))
        return top

    @fn
    def load(m, src, importance, lanes, b):
        """Load block b of each row, and its weights."""
        for i in range(values):
            put(m + X, i, v.f32_gather(src + 4 * (values * b + i), lanes))
        if weighted:
            for i in range(values):
                put(m + W, i, v.f32x16(v.ld_f32(importance + 4 * (values * b + i))))
        weigh(m)

    @kernel(name=f"quantize_{quantizer.type.name}{'_weighted' if weighted else ''}")
    def quantize(p, ith, nth):
        n_per_row, n_rows, m = v.ne(p, 1, 0), v.ne(p, 1, 1), v.local(p, ith)
        dst, src, importance = v.data(p, 0), v.data(p, 1), v.data(p, 2)
        for i in range(3):
            v.st_i64(m + TABLES + 8 * i, v.extra(p, i))
        blocks = n_per_row // values
        row_size = head + blocks * size
        for first in range(0, n_rows, LANES):
            n = min(LANES, n_rows - first)
            lanes = v.vmin(v.i32x16_load(v.table(COUNT)), v.i32x16(n - 1)) * n_per_row
            rows, largest = src + 4 * first * n_per_row, v.f32x16(0.0)
            v.store(m + SIGMA, largest_values(rows, lanes, n_per_row))
            for b in range(blocks):
                load(m, rows, importance, lanes, b)
                largest = search(m, m + MEMORY + found_size * b, largest)
            d = start(m, blocks, largest)
            for i in range(16):
                put(m + SUMS, i, v.f32x16(0.0))
            for b in range(blocks):
                load(m, rows, importance, lanes, b)
                put_block(m, m + MEMORY + found_size * b, d)
                for lane in range(n):
                    to = dst + row_size * (first + lane) + head + size * b
                    for i in range(size):
                        v.st_u8(to + i, v.ld_u8(m + BYTES + LANES * i + lane))
            scale = finish(m, d)
            v.store(m + SIGMA, scale)
            put_half(m, 0, scale)
            for lane in range(n):
                to = dst + row_size * (first + lane)
                if head == 2:
                    v.st_u8(to, v.ld_u8(m + BYTES + lane))
                    v.st_u8(to + 1, v.ld_u8(m + BYTES + LANES + lane))
                else:
                    v.st_i32(to, v.ld_i32(m + SIGMA + 4 * lane))

    return quantize


KERNELS: dict[tuple[str, bool], Kernel] = {
    (name, weighted): (_rows if q.rows is None else _whole_rows)(q, make, weighted)
    for name, q in quantizers().items()
    for weighted, make in ((False, q.plain), (True, q.weighted))
    if make is not None
}
