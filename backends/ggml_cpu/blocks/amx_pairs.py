"""AMX: weights of bf16, and quantized ones, times many columns in pairs of bf16.

A step has 32 values, 16 pairs. Quantized weights become bf16, a panel of 32 rows at a time, and so
do columns: eight bits of each value, whereas rounding to bytes has the same steps for all 32.
"""

from __future__ import annotations

from dataclasses import replace

from ggml_cpu import vocabulary as v
from ggml_cpu.blocks.activations import Activations
from ggml_cpu.blocks.amx import (
    A_NARROW,
    B_NEXT,
    C_NARROW,
    C_NEXT,
    NARROW,
    REGISTERS,
    WORDS,
    A,
    B,
    C,
)
from ggml_cpu.blocks.floats import ROW, WORD
from ggml_cpu.blocks.format import Weight
from ggml_cpu.blocks.interleave import transpose_rows
from ggml_cpu.blocks.panels import blocks_of
from ggml_cpu.kernel import Function, fn
from ggml_cpu.target import LANES, TILE

LINE = 4 * WORDS
PAIRS = 2 * WORDS  # values of a step
REGISTER = WORDS * ROW  # bytes of a step of a panel: two registers of rows, side by side
AT_ONCE = 512  # values of a row that become bf16 at a time: 32 KiB of a panel
SPARE = 8 << 10  # bytes behind a panel, of a row that is on its way
MANY = 192  # columns from which that costs less than the products of bytes


@fn
def steps_at(n):
    return (n + PAIRS - 1) // PAIRS


@fn
def pack_pairs(x, n, to):
    """The last step ends with zeros."""
    for i in range(0, n, PAIRS):
        for j in range(i, i + PAIRS, LANES):
            v.store(to + 2 * j, v.f32_to_bf16(v.f32_load_n(x + 4 * j, n - j)))


STEPS = Activations("bf16_steps", PAIRS, LINE, pack_pairs, WORDS)

# ---- panels


@fn
def put_steps(x, n, r, dst):
    """n f32 values, whole steps, as row r of steps that are still to be transposed."""
    to = dst + ROW * r
    for _ in range(n // PAIRS):
        low, high = v.f32_load(x), v.f32_load(x + 4 * LANES)
        v.store(to, v.concat(v.f32_to_bf16(low), v.f32_to_bf16(high)))
        x += 4 * PAIRS
        to += REGISTER


@fn
def panel_bytes(steps: int) -> int:
    return steps * REGISTER + SPARE


def _unpack(row_of: Function) -> Function:
    """row_of(src, stride, r, n, dst): row r of some as f32, and room for SPARE bytes at dst."""

    @fn
    def unpack(src, stride, rows, n, dst):
        steps = steps_at(n)
        spare = dst + steps * REGISTER
        for first in range(0, rows, LANES):
            to = dst + first // LANES * WORD
            for r in range(LANES):
                row_of(src, stride, min(first + r, rows - 1), n, spare)
                put_steps(spare, n, r, to)
            for i in range(steps):
                transpose_rows(to + i * REGISTER, ROW)

    return unpack


def _in_rows(weight: Weight) -> Function:
    dequantize = weight.dequantize

    @fn
    def row_of(src, stride, r, n, dst):
        dequantize(src + r * stride, n, dst)

    return row_of


def _in_panels(weight: Weight) -> Function:
    """stride: from a panel to the next."""
    row, dequantize = weight.row, weight.dequantize

    @fn
    def row_of(src, stride, r, n, dst):
        blocks = dst + 4 * AT_ONCE
        row(src + r // LANES * stride, r % LANES, n, blocks)
        dequantize(blocks, n, dst)

    return row_of


# ---- tiles


@fn
def begin(out, more):
    """Sums of a full tile: zeros or, with `more`, those at `out`."""
    if more:
        v.amx_load(C, out, ROW, TILE, LANES)
        v.amx_load(C_NEXT, out + WORD, ROW, TILE, LANES)
    else:
        v.amx_zero(C)
        v.amx_zero(C_NEXT)


@fn
def finish(out):
    v.amx_store(C, out, ROW, TILE, LANES)
    v.amx_store(C_NEXT, out + WORD, ROW, TILE, LANES)


def _in_narrow_parts(width: int, add: Function) -> Function:
    """A tile of up to eight columns, NARROW columns and LANES rows at a time.

    add(w, columns, step): the products of one step, whose `width` columns are at `columns`, added
    to register C_NARROW; w: the rows of the panel."""

    @fn
    def multiply(w, columns, steps, out, more):
        for first in range(0, width, NARROW):
            for half in range(0, ROW, WORD):
                to = out + ROW * first + half
                if more:
                    v.amx_load(C_NARROW, to, ROW, NARROW, LANES)
                else:
                    v.amx_zero(C_NARROW)
                for i in range(steps):
                    add(w + half, columns + LINE * first, i)
                v.amx_store(C_NARROW, to, ROW, NARROW, LANES)

    return multiply


def tile(width: int) -> Function:
    """`Weight.tile` of bf16."""

    @fn
    def add(w, columns, i):
        v.amx_load(A_NARROW, columns + i * LINE * width, LINE, NARROW, WORDS)
        v.amx_load(B, w + i * REGISTER, ROW, WORDS, LANES)
        v.amx_dot_bf16(C_NARROW, A_NARROW, B)

    @fn
    def multiply(w, columns, steps, out, more):
        begin(out, more)
        for _ in range(steps):
            v.amx_load(A, columns, LINE, TILE, WORDS)
            v.amx_load(B, w, ROW, WORDS, LANES)
            v.amx_load(B_NEXT, w + WORD, ROW, WORDS, LANES)
            v.amx_dot_bf16(C, A, B)
            v.amx_dot_bf16(C_NEXT, A, B_NEXT)
            w += REGISTER
            columns += LINE * width
        finish(out)

    return multiply if width == TILE else _in_narrow_parts(width, add)


# ---- weights


def in_pairs(weight: Weight, panels: bool = False) -> Weight:
    """A quantized type, in place or in panels, as it is multiplied with MANY columns."""
    row_of = _in_panels(weight) if panels else _in_rows(weight)
    kind = weight.type
    assert AT_ONCE % (blocks_of(kind).together * kind.block_size) == 0
    return replace(
        weight, activations=STEPS, of_dots=None, rows=2 * LANES, panel=panel_bytes,
        unpack=_unpack(row_of), tile=tile, k_block=AT_ONCE // PAIRS, registers=REGISTERS,
        of_panels=weight if panels else None,
    )  # fmt: skip


def bf16_weight(pairs: Weight) -> Weight:
    """`pairs` has what few columns are multiplied with, and panels of pairs."""
    interleave = pairs.unpack

    @fn
    def unpack(src, stride, rows, n, dst):
        interleave(src, stride, rows, n, dst)
        for at in range(dst + (n + 1) // 2 * ROW, dst + steps_at(n) * REGISTER, WORD):
            v.store(at, v.i32(0))

    return replace(
        pairs, activations=STEPS, of_dots=pairs.activations, panel=panel_bytes,
        unpack=unpack, tile=tile, k_block=AT_ONCE // PAIRS, registers=REGISTERS,
    )  # fmt: skip
