"""AMX: bf16 and f16 weights times many columns.

bf16: pairs are multiplied as they are; a step has 32 values, 16 pairs.
f16: integers as in integers16.py, up to TOP; x = 128 * high + low, both bytes; the sum is exact,
128 * 128 * (high high) + 128 * (high low + low high) + (low low). A step has 64 values: their high
bytes, 16 words, as many words of low ones, and a scale.
"""

from __future__ import annotations

from dataclasses import replace

from ggml_cpu import vocabulary as v
from ggml_cpu.blocks.activations import Activations
from ggml_cpu.blocks.amx import NARROW, configuration, rows_of
from ggml_cpu.blocks.floats import ROW, WORD
from ggml_cpu.blocks.format import Weight
from ggml_cpu.blocks.integers16 import (
    add_scaled,
    inverse,
    load_f32_n,
    scale_of,
)
from ggml_cpu.blocks.panels import Blocks, length
from ggml_cpu.kernel import Function, fn
from ggml_cpu.target import LANES, TILE

WORDS = 16  # of a row of a register
LINE = 4 * WORDS
REGISTER = WORDS * ROW  # from rows of a panel to the next that a register takes

# ---- bf16

PAIRS = 32  # values of a step
PAIRS_K_BLOCK = 32  # steps of a panel at a time: 64 KiB
B_FIRST, B_LAST = 6, 7  # the rows of a panel are two registers
PAIR_REGISTERS = configuration(
    *[(TILE, LANES), (TILE, LANES), (TILE, WORDS)],
    *[(NARROW, LANES), (NARROW, LANES), (NARROW, WORDS)],
    *[(WORDS, LANES), (WORDS, LANES)],
)  # fmt: skip


@fn
def pack_pairs(x, n, to):
    """The last step ends with zeros."""
    for i in range(0, n, PAIRS):
        for j in range(i, i + PAIRS, LANES):
            v.store(to + 2 * j, v.f32_to_bf16(v.f32_load_n(x + 4 * j, n - j)))


def _unpack_pairs(unpack: Function) -> Function:
    @fn
    def unpack_steps(src, stride, rows, n, dst):
        unpack(src, stride, rows, n, dst)
        for at in range(dst + (n + 1) // 2 * ROW, dst + (n + PAIRS - 1) // PAIRS * REGISTER, WORD):
            v.store(at, v.i32(0))

    return unpack_steps


def _pairs_tile(width: int) -> Function:
    rows = rows_of(width)
    c = 0 if rows == TILE else 3
    d, a = c + 1, c + 2

    @fn
    def multiply(w, columns, steps, out):
        v.amx_zero(c)
        v.amx_zero(d)
        for _ in range(steps):
            v.amx_load(a, columns, LINE, rows, WORDS)
            v.amx_load(B_FIRST, w, ROW, WORDS, LANES)
            v.amx_load(B_LAST, w + WORD, ROW, WORDS, LANES)
            v.amx_dot_bf16(c, a, B_FIRST)
            v.amx_dot_bf16(d, a, B_LAST)
            w += REGISTER
            columns += LINE * width
        v.amx_store(c, out, ROW, rows, LANES)
        v.amx_store(d, out + WORD, ROW, rows, LANES)

    return multiply


def pairs_weight(pairs: Weight) -> Weight:
    """bf16; `pairs` has what few columns are multiplied with, and panels of pairs."""
    columns = Activations("bf16_steps", PAIRS, LINE, pack_pairs, WORDS, WORDS)
    return replace(
        pairs, activations=columns, of_dots=pairs.activations, panel=length(Blocks(REGISTER)),
        unpack=_unpack_pairs(pairs.unpack), tile=_pairs_tile, k_block=PAIRS_K_BLOCK,
        registers=PAIR_REGISTERS,
    )  # fmt: skip


# ---- f16

BLOCK = 64
TOP = 16383.0  # its high byte is 127
HALVES_K_BLOCK = 16  # steps of a panel at a time: 66 KiB
SCALES = 2 * REGISTER  # in a panel
HALVES_BYTES = SCALES + ROW
COLUMN_SCALE = 2 * LINE
COLUMN_BYTES = COLUMN_SCALE + 4
B_HIGH, B_LOW = 6, 7
HALF_REGISTERS = configuration(
    *[(TILE, LANES), (TILE, WORDS), (TILE, WORDS)],
    *[(NARROW, LANES), (NARROW, WORDS), (NARROW, WORDS)],
    *[(WORDS, LANES), (WORDS, LANES)],
)  # fmt: skip


def _bytes(load_n: Function, size: int) -> Function:
    @fn
    def integers(x, n, factor):
        return v.to_i32(v.vround(load_n(x, n) * factor))

    @fn
    def joined(q, r, s, t):
        return v.concat(v.concat(v.to_i8(q), v.to_i8(r)), v.concat(v.to_i8(s), v.to_i8(t)))

    @fn
    def both(x, n, factor):
        """The high and the low bytes of the up to BLOCK values at x, multiplied by `factor`."""
        q, r = integers(x, n, factor), integers(x + 16 * size, n - 16, factor)
        s, t = integers(x + 32 * size, n - 32, factor), integers(x + 48 * size, n - 48, factor)
        high = joined(v.asr(q, 7), v.asr(r, 7), v.asr(s, 7), v.asr(t, 7))
        return high, joined(q & 127, r & 127, s & 127, t & 127)

    return both


_column_scale, _column_bytes = scale_of(load_f32_n, 4, TOP, BLOCK), _bytes(load_f32_n, 4)


@fn
def pack_halves(x, n, to):
    for i in range(0, n, BLOCK):
        scale = _column_scale(x + 4 * i, n - i)
        high, low = _column_bytes(x + 4 * i, n - i, inverse(scale))
        v.store(to, high)
        v.store(to + LINE, low)
        v.st_f32(to + COLUMN_SCALE, scale)
        to += COLUMN_BYTES


def _unpack_halves(load_n: Function, size: int) -> Function:
    scale, both = scale_of(load_n, size, TOP, BLOCK), _bytes(load_n, size)

    @fn
    def some_rows(src, stride, rows, n, dst):
        """BLOCK values of LANES rows, the last of them repeated."""
        highs, lows = v.i32_regs(LANES), v.i32_regs(LANES)
        for r in range(LANES):
            row = src + min(r, rows - 1) * stride
            one = scale(row, n)
            high, low = both(row, n, inverse(one))
            highs[r], lows[r] = v.as_i32(high), v.as_i32(low)
            v.st_f32(dst + SCALES + 4 * r, one)
        v.transpose(highs)
        v.transpose(lows)
        for i in range(WORDS):
            v.store(dst + i * ROW, highs[i])
            v.store(dst + REGISTER + i * ROW, lows[i])

    @fn
    def unpack(src, stride, rows, n, dst):
        for i in range(0, n, BLOCK):
            some_rows(src + i * size, stride, min(rows, LANES), n - i, dst)
            if rows > LANES:
                second = src + LANES * stride + i * size
                some_rows(second, stride, rows - LANES, n - i, dst + WORD)
            dst += HALVES_BYTES

    return unpack


def _halves_tile(width: int) -> Function:
    rows = rows_of(width)
    c = 0 if rows == TILE else 3
    a_high, a_low = c + 1, c + 2

    @fn
    def add(w, column_scales, out):
        """The products of LANES rows, added to `out`."""
        high, mixed, low = v.i32_regs(rows), v.i32_regs(rows), v.i32_regs(rows)
        v.amx_load(B_HIGH, w, ROW, WORDS, LANES)
        v.amx_load(B_LOW, w + REGISTER, ROW, WORDS, LANES)
        v.amx_zero(c)
        v.amx_dot(c, a_high, B_HIGH)
        v.amx_store_words(c, high)
        v.amx_zero(c)
        v.amx_dot(c, a_high, B_LOW)
        v.amx_dot(c, a_low, B_HIGH)
        v.amx_store_words(c, mixed)
        v.amx_zero(c)
        v.amx_dot(c, a_low, B_LOW)
        v.amx_store_words(c, low)
        scales = v.f32_load(w + SCALES)
        for t in range(width):
            total = (high[t] << 14) + (mixed[t] << 7) + low[t]
            add_scaled(out + ROW * t, total, scales, column_scales + 4 * t)

    @fn
    def multiply(w, columns, steps, out):
        for at in range(out, out + ROW * width, WORD):
            v.store(at, v.f32(0.0))
        for _ in range(steps):
            v.amx_load(a_high, columns, LINE, rows, WORDS)
            v.amx_load(a_low, columns + LINE * width, LINE, rows, WORDS)
            add(w, columns + COLUMN_SCALE * width, out)
            add(w + WORD, columns + COLUMN_SCALE * width, out + WORD)
            w += HALVES_BYTES
            columns += COLUMN_BYTES * width

    return multiply


def halves_weight(in_f32: Weight, load_n: Function, few: int) -> Weight:
    """f16; `in_f32` has what up to `few` columns are multiplied with."""
    words = COLUMN_SCALE // 4
    columns = Activations("i16_bytes", BLOCK, COLUMN_BYTES, pack_halves, words, WORDS)
    return replace(
        in_f32, activations=columns, of_dots=in_f32.activations, few=few,
        panel=length(Blocks(HALVES_BYTES)), k_block=HALVES_K_BLOCK,
        unpack=_unpack_halves(load_n, in_f32.type.type_size), tile=_halves_tile,
        registers=HALF_REGISTERS,
    )  # fmt: skip
