"""Matrix multiplication for f32, f16 and bf16: panels of 2 * LANES rows of f32 or bf16 pairs."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from ggml_cpu import vocabulary as v
from ggml_cpu.blocks.activations import Activations
from ggml_cpu.blocks.ahead import fetch_ahead
from ggml_cpu.blocks.format import Weight
from ggml_cpu.blocks.interleave import interleaver
from ggml_cpu.blocks.panels import Blocks, length
from ggml_cpu.blocks.tiles import panel_function
from ggml_cpu.kernel import Function, fn, routine
from ggml_cpu.target import LANES, TILE
from ggml_py.types import BY_NAME

WORD = 4 * LANES
ROW = 2 * WORD  # bytes of a panel per step
ROWS_AT_ONCE = 4  # rows in place that share a load of the column
COLUMNS_AT_ONCE = TILE // 3  # columns that share a load of the rows
CHAINS = 4  # independent sums of one row
NEAR = 16 << 10  # largest column, in bytes, that remains in the L1 cache while rows are read
SPAN = 64  # steps per partial sum: one long sum would have a larger rounding error
FEW = 64  # largest batch that uses rows in place: several columns share a load
K_BLOCK = 512  # steps of a panel at a time: 64 KiB for vectors of 16 lanes


@fn
def store_or_add(at, more, x):
    """Store x at `at`, or add it to the vector at `at` if `more`."""
    if more:
        x = x + v.f32_load(at)
    v.store(at, x)


def _tile(load: Function, spread: Function, multiply_add: Function) -> Callable[[int], Function]:
    def tile(width: int) -> Function:
        @panel_function(width)
        def multiply(w, a, steps, out):
            for s in range(0, steps, SPAN):
                first = v.f32_regs(width)
                second = v.f32_regs(width)
                for _ in range(min(SPAN, steps - s)):
                    x, y = load(w), load(w + WORD)
                    for t in range(width):
                        column = spread(a + 4 * t)
                        first[t] = multiply_add(first[t], x, column)
                        second[t] = multiply_add(second[t], y, column)
                    w += ROW
                    a += 4 * width
                for t in range(width):
                    store_or_add(out + ROW * t, s > 0, first[t])
                    store_or_add(out + ROW * t + WORD, s > 0, second[t])

        return multiply

    return tile


def _unpack(interleave: Function) -> Function:
    @fn
    def unpack(src, stride, rows, n, dst):
        interleave(src, stride, min(rows, LANES), n, dst, ROW)
        if rows > LANES:
            interleave(src + LANES * stride, stride, rows - LANES, n, dst + WORD, ROW)

    return unpack


class Operands(NamedTuple):
    """Functions that read rows in place and columns for dot products.

    load, load_n, size                       read a vector of a row, its first n elements; bytes per
                                             element
    column_load, column_load_n, column_size  the same for a column
    multiply_add                             multiply_add(sum, row, column)
    span                                     elements per vector
    """

    load: Function
    load_n: Function
    size: int
    column_load: Function
    column_load_n: Function
    column_size: int
    multiply_add: Function
    span: int


def _dots(operands: Operands, at_once: int) -> Function:
    """Return dots(..), like `Weight.dots`, for ROWS_AT_ONCE rows and `at_once` columns."""
    load, load_n, size, column_load, column_load_n, column_size, multiply_add, span = operands
    both = ROWS_AT_ONCE * at_once

    @routine
    def dots(src, stride, rows, a, apart, columns, n, out):
        """Compute the dot products and prefetch the next rows; missing rows repeat the last one."""
        sums = v.f32_regs(both)
        whole = n // span * span
        for i in range(0, whole, span):
            for c in range(at_once):
                x = column_load(a + min(c, columns - 1) * apart + i * column_size)
                for r in range(ROWS_AT_ONCE):
                    j = c * ROWS_AT_ONCE + r
                    w = load(src + min(r, rows - 1) * stride + i * size)
                    sums[j] = multiply_add(sums[j], w, x)
            for b in range(0, ROWS_AT_ONCE * span * size, 64):
                v.prefetch(src + ROWS_AT_ONCE * (stride + i * size) + b)
        if whole < n:
            left = n - whole
            for c in range(at_once):
                x = column_load_n(a + min(c, columns - 1) * apart + whole * column_size, left)
                for r in range(ROWS_AT_ONCE):
                    j = c * ROWS_AT_ONCE + r
                    w = load_n(src + min(r, rows - 1) * stride + whole * size, left)
                    sums[j] = multiply_add(sums[j], w, x)
        for j in range(both):
            v.st_f32(out + 4 * j, v.vsum(sums[j]))

    return dots


def _few_dots(operands: Operands) -> Function:
    """Return `Weight.dots`: a variant for two columns and one for up to COLUMNS_AT_ONCE.

    An unused column has the same cost as a used column.
    """
    two, most = _dots(operands, 2), _dots(operands, COLUMNS_AT_ONCE)

    @fn
    def dots(src, stride, rows, a, apart, columns, n, out):
        if columns <= 2:
            two(src, stride, rows, a, apart, columns, n, out)
        else:
            most(src, stride, rows, a, apart, columns, n, out)

    return dots if COLUMNS_AT_ONCE > 2 else most


def _dot(operands: Operands) -> Function:
    """Return `Weight.dot`: one row at a time if the column fits the L1 cache, else several rows."""
    load, load_n, size, column_load, column_load_n, column_size, multiply_add, span = operands
    several_rows = _dots(operands, 1)
    stretch = CHAINS * span

    @fn
    def one_row(src, a, n):
        sums = v.f32_regs(CHAINS)
        whole = n // stretch * stretch
        for i in range(0, whole, stretch):
            fetch_ahead(src + i * size, stretch * size)
            for c in range(CHAINS):
                j = i + c * span
                x = column_load(a + j * column_size)
                sums[c] = multiply_add(sums[c], load(src + j * size), x)
        total = (sums[0] + sums[1]) + (sums[2] + sums[3])
        for i in range(whole, n, span):
            x = column_load_n(a + i * column_size, n - i)
            total = multiply_add(total, load_n(src + i * size, n - i), x)
        return v.vsum(total)

    @fn
    def dot(src, stride, rows, a, n, out):
        if n * column_size <= NEAR:
            for r in range(rows):
                v.st_f32(out + 4 * r, one_row(src + r * stride, a, n))
        else:
            several_rows(src, stride, rows, a, 0, 1, n, out)

    return dot


@fn
def load_f32(address):
    return v.f32_load(address)


@fn
def load_f32_n(address, n):
    return v.f32_load_n(address, n)


@fn
def spread_f32(address):
    return v.f32_bcast(address)


@fn
def fma_f32(total, x, y):
    return v.fma(x, y, total)


def f32_weight(name: str, activations: Activations, load: Function, load_n: Function) -> Weight:
    """Return a weight type multiplied in f32; `load`, `load_n` convert its elements to f32."""
    kind = BY_NAME[name]
    size = kind.type_size
    operands = Operands(load, load_n, size, load_f32, load_f32_n, 4, fma_f32, LANES)

    @fn
    def words(address):
        return v.as_i32(load(address))

    @fn
    def words_n(address, n):
        return v.as_i32(load_n(address, n))

    return Weight(
        type=kind,
        activations=activations,
        rows=2 * LANES,
        panel=length(Blocks(ROW)),
        unpack=_unpack(interleaver(words, words_n, size)),
        tile=_tile(load_f32, spread_f32, fma_f32),
        dot=_dot(operands),
        dots=_few_dots(operands),
        dot_rows=ROWS_AT_ONCE,
        dot_columns=COLUMNS_AT_ONCE,
        k_block=K_BLOCK,
        few=FEW,
    )


@fn
def load_pairs(address):
    return v.i16_load(address)


@fn
def load_pairs_n(address, n):
    return v.i16_load_n(address, n)


@fn
def pair_words(address):
    return v.as_i32(v.i16_load(address))


@fn
def pair_words_n(address, n):
    return v.as_i32(v.i16_load_n(address, n))


@fn
def spread_pairs(address):
    return v.as_i16(v.i32_bcast(address))


@fn
def dot_pairs(total, x, y):
    return v.dotbf16(total, x, y)


def bf16_pairs_weight(name: str, activations: Activations) -> Weight:
    """Return bf16 for CPUs with bf16 dot products of pairs (VDPBF16PS, BFDOT)."""
    operands = Operands(
        load_pairs, load_pairs_n, 2, load_pairs, load_pairs_n, 2, dot_pairs, 2 * LANES
    )
    return Weight(
        type=BY_NAME[name],
        activations=activations,
        rows=2 * LANES,
        panel=length(Blocks(ROW)),
        unpack=_unpack(interleaver(pair_words, pair_words_n, 2, 2)),
        tile=_tile(load_pairs, spread_pairs, dot_pairs),
        dot=_dot(operands),
        dots=_few_dots(operands),
        dot_rows=ROWS_AT_ONCE,
        dot_columns=COLUMNS_AT_ONCE,
        k_block=K_BLOCK,
        few=FEW,
    )
