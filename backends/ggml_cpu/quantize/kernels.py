"""One kernel per quantizer: converts rows of f32 to rows of blocks, 16 blocks at a time.

dst        blocks [n_per_row, n_rows]
src0       f32 [n_per_row, n_rows]
src1       importance f32 [n_per_row], optional
extra 0..  addresses of a codebook's tables
"""

from __future__ import annotations

from ggml_cpu import vocabulary as v
from ggml_cpu.kernel import Function, Kernel, fn, kernel
from ggml_cpu.quantize.format import FOUND, Quantizer
from ggml_cpu.quantize.lanes import BYTES, LANES, MEMORY, SIGMA, SPARE, TABLES, W, X, mul, put
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
    """Return the kernel of a type whose rows begin with their scale, an f32."""
    assert quantizer.rows is not None
    size, steps = quantizer.type.type_size - 4, quantizer.rows
    search, start, put_block, finish = steps.search, steps.start, steps.put, steps.finish

    @fn
    def load(m, src, importance, lanes, b):
        """Load block b of each row, and its weights."""
        for i in range(256):
            put(m + X, i, v.f32_gather(src + 4 * (256 * b + i), lanes))
        if weighted:
            for i in range(256):
                put(m + W, i, v.f32x16(v.ld_f32(importance + 4 * (256 * b + i))))
        weigh(m)

    @kernel(name=f"quantize_{quantizer.type.name}{'_weighted' if weighted else ''}")
    def quantize(p, ith, nth):
        n_per_row, n_rows, m = v.ne(p, 1, 0), v.ne(p, 1, 1), v.local(p, ith)
        dst, src, importance = v.data(p, 0), v.data(p, 1), v.data(p, 2)
        blocks = n_per_row // 256
        row_size = 4 + blocks * size
        for first in range(0, n_rows, LANES):
            n = min(LANES, n_rows - first)
            lanes = v.vmin(v.i32x16_load(v.table(COUNT)), v.i32x16(n - 1)) * n_per_row
            rows, largest = src + 4 * first * n_per_row, v.f32x16(0.0)
            for b in range(blocks):
                load(m, rows, importance, lanes, b)
                largest = v.vmax(largest, search(m, m + MEMORY + FOUND * b))
            d, qx, qq = start(largest), v.f32x16(0.0), v.f32x16(0.0)
            for b in range(blocks):
                load(m, rows, importance, lanes, b)
                qx, qq = put_block(m, m + MEMORY + FOUND * b, d, qx, qq)
                for lane in range(n):
                    to = dst + row_size * (first + lane) + 4 + size * b
                    for i in range(size):
                        v.st_u8(to + i, v.ld_u8(m + BYTES + LANES * i + lane))
            v.store(m + SIGMA, finish(d, qx, qq))
            for lane in range(n):
                v.st_i32(dst + row_size * (first + lane), v.ld_i32(m + SIGMA + 4 * lane))

    return quantize


KERNELS: dict[tuple[str, bool], Kernel] = {
    (name, weighted): (_rows if q.rows is None else _whole_rows)(q, make, weighted)
    for name, q in quantizers().items()
    for weighted, make in ((False, q.plain), (True, q.weighted))
    if make is not None
}
