"""bf16 GEMM with Arm's BFMMLA, which multiplies two rows by two columns.

A step has four values. The four values of a panel row are adjacent, and so are the four values of a
tile's column: a vector holds two rows, or two columns.
"""

from __future__ import annotations

from dataclasses import replace

from ggml_cpu import vocabulary as v
from ggml_cpu.blocks.activations import Activations
from ggml_cpu.blocks.floats import ROW, SPAN, WORD, store_or_add
from ggml_cpu.blocks.format import Weight
from ggml_cpu.blocks.panels import Blocks, length
from ggml_cpu.kernel import Function, fn

STEP, STEP_BYTES = 4, 8
ROWS = 8
PANEL = ROWS * STEP_BYTES


@fn
def pack(x, n, to):
    """Pack f32 values as steps of four bf16; pad the last step with zeros."""
    for i in range(0, n, STEP):
        v.store(to + 2 * i, v.f32_to_bf16(v.f32x4_load_n(x + 4 * i, n - i)))


@fn
def unpack(src, stride, rows, n, dst):
    for r in range(ROWS):
        row, to, whole = src + min(r, rows - 1) * stride, dst + STEP_BYTES * r, n // STEP
        for i in range(whole):
            v.st_i64(to + PANEL * i, v.ld_i64(row + STEP_BYTES * i))
        if whole * STEP < n:
            at = to + PANEL * whole
            v.st_i64(at, 0)
            for i in range(whole * STEP, n):
                v.st_u16(at + 2 * (i - whole * STEP), v.ld_u16(row + 2 * i))


@fn
def split_columns(first, second):
    """Return two columns of four rows; `first` has rows 0, 1 of both, `second` has rows 2, 3."""
    x, y = v.as_i64(first), v.as_i64(second)
    return v.as_f32(v.zip_low(x, y)), v.as_f32(v.zip_high(x, y))


def tile(width: int) -> Function:
    """Return `Weight.tile`; two columns have four sum vectors: rows 0, 1; 2, 3; 4, 5; 6, 7."""
    pairs = (width + 1) // 2
    alone, vectors = width == 1, 4 * pairs

    @fn
    def load_columns(a, i):
        if alone:
            return v.as_i16(v.concat(v.i32x2_load(a), v.i32x2(0)))
        return v.i16x8_load(a + 16 * i)

    @fn
    def put(to, more, first, second):
        x, y = split_columns(first, second)
        store_or_add(to, more, x)
        if not alone:
            store_or_add(to + ROW, more, y)

    @fn
    def multiply(w, a, steps, out):
        for s in range(0, steps, SPAN):
            sums = v.f32_regs(vectors)
            for _ in range(min(SPAN, steps - s)):
                q, r = v.i16x8_load(w), v.i16x8_load(w + 16)
                t, u = v.i16x8_load(w + 32), v.i16x8_load(w + 48)
                for i in range(pairs):
                    x = load_columns(a, i)
                    sums[4 * i] = v.matrix_dotbf16(sums[4 * i], x, q)
                    sums[4 * i + 1] = v.matrix_dotbf16(sums[4 * i + 1], x, r)
                    sums[4 * i + 2] = v.matrix_dotbf16(sums[4 * i + 2], x, t)
                    sums[4 * i + 3] = v.matrix_dotbf16(sums[4 * i + 3], x, u)
                w += PANEL
                a += STEP_BYTES * width
            for i in range(pairs):
                to = out + 2 * ROW * i
                put(to, s > 0, sums[4 * i], sums[4 * i + 1])
                put(to + WORD, s > 0, sums[4 * i + 2], sums[4 * i + 3])

    return multiply


def squares_weight(pairs: Weight) -> Weight:
    """Return the BFMMLA variant of bf16; `pairs` provides dot products of few columns."""
    columns = Activations("bf16_fours", STEP, STEP_BYTES, pack, 2)
    assert pairs.rows == ROWS
    return replace(
        pairs,
        activations=columns,
        of_dots=pairs.activations,
        panel=length(Blocks(PANEL)),
        unpack=unpack,
        tile=tile,
    )
