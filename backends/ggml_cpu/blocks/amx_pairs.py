"""AMX: weights of bf16, and quantized ones, times many columns in pairs of bf16.

A step has 32 values, 16 pairs. Quantized weights become bf16, a panel of 32 rows at a time, and so
do columns: eight bits of each value, whereas rounding to bytes has the same steps for all 32.
"""

from __future__ import annotations

from dataclasses import replace

from ggml_cpu import vocabulary as v
from ggml_cpu.blocks.activations import Activations
from ggml_cpu.blocks.amx import HALF, LINE, REGISTER, ROW, ROWS, WORDS, tile_of
from ggml_cpu.blocks.format import Weight
from ggml_cpu.blocks.panels import blocks_of
from ggml_cpu.kernel import Function, fn
from ggml_cpu.target import LANES

PAIRS = 2 * WORDS  # values of a step
AT_ONCE = 512  # values of a row that become bf16 at a time: 32 KiB of a panel
MANY = 48  # columns from which that costs less than the products of bytes


@fn
def steps_at(n):
    return (n + PAIRS - 1) // PAIRS


@fn
def pack_pairs(x, n, to):
    """The last step ends with zeros."""
    for i in range(0, n, PAIRS):
        first, after = v.f32_load_n(x + 4 * i, n - i), n - i - LANES
        v.store(to + 2 * i, v.bf16_of(first, v.f32_load_n(x + 4 * (i + LANES), after)))


STEPS = Activations("bf16_steps", PAIRS, LINE, pack_pairs, WORDS, ROWS, tile_of)

# ---- panels


@fn
def value(words, i, scale, offset):
    return v.fma(v.to_f32((words >> (8 * i)) & 255), scale, offset)


@fn
def put(values, scale, offset, to):
    """`put` of Weight.values: two pairs of each row."""
    words = v.as_i32(values)
    first = v.bf16_of(value(words, 0, scale, offset), value(words, 1, scale, offset))
    second = v.bf16_of(value(words, 2, scale, offset), value(words, 3, scale, offset))
    v.store(to, v.zip_halves(first))
    v.store(to + ROW, v.zip_halves(second))


@fn
def panel_bytes(steps: int) -> int:
    return steps * REGISTER


def _put_pairs(weight: Weight) -> Function:
    assert weight.values is not None
    return weight.values(put, 2 * ROW)


def _of_rows(weight: Weight) -> tuple[Function, Function]:
    """`unpack` and `panel` for rows in place, of which panels of `weight` are made behind these."""
    pack, put_pairs = weight.unpack, _put_pairs(weight)
    spare = weight.panel(AT_ONCE // weight.step)

    @fn
    def unpack(src, stride, rows, n, dst):
        panel = dst + panel_bytes(steps_at(n))
        for first in range(0, rows, LANES):
            pack(src + first * stride, stride, min(rows - first, LANES), n, panel)
            put_pairs(panel, n, dst + first // LANES * HALF)

    @fn
    def with_spare(steps):
        return panel_bytes(steps) + spare

    return unpack, with_spare


def _of_panels(weight: Weight) -> tuple[Function, Function]:
    """Return functions for panels: their unpacking, and their bytes."""
    put_pairs = _put_pairs(weight)

    @fn
    def unpack(src, stride, rows, n, dst):
        for first in range(0, rows, LANES):
            put_pairs(src + first // LANES * stride, n, dst + first // LANES * HALF)

    return unpack, panel_bytes


# ---- weights


def in_pairs(weight: Weight, panels: bool = False) -> Weight:
    """Return a quantized type, in place or in panels, as it is multiplied with MANY columns."""
    unpack, panel = _of_panels(weight) if panels else _of_rows(weight)
    kind = weight.type
    assert AT_ONCE % (blocks_of(kind).together * kind.block_size) == 0
    return replace(
        weight,
        activations=STEPS,
        of_dots=None,
        rows=2 * LANES,
        panel=panel,
        unpack=unpack,
        k_block=AT_ONCE // PAIRS,
        registers=True,
        of_panels=weight if panels else None,
    )


def bf16_weight(pairs: Weight) -> Weight:
    """Return bf16 with products of few columns, and panels, as in `pairs`."""
    interleave = pairs.unpack

    @fn
    def unpack(src, stride, rows, n, dst):
        interleave(src, stride, rows, n, dst)
        for at in range(dst + (n + 1) // 2 * ROW, dst + steps_at(n) * REGISTER, HALF):
            v.store(at, v.i32(0))

    return replace(
        pairs,
        activations=STEPS,
        of_dots=pairs.activations,
        panel=panel_bytes,
        unpack=unpack,
        k_block=AT_ONCE // PAIRS,
        registers=True,
    )
