"""AMX GEMM of bf16 and quantized weights, both operands as pairs of bf16.

A step has 32 values, 16 pairs. Columns and quantized weights are converted to bf16, the weights in
panels of 32 rows. bf16 keeps eight significant bits per value; 8-bit quantization has one step size
for a block of 32.
"""

from __future__ import annotations

from dataclasses import replace

from ggml_cpu import vocabulary as v
from ggml_cpu.blocks.activations import Activations
from ggml_cpu.blocks.amx import HALF, LINE, REGISTER, ROW, ROWS, WORDS, find_tile
from ggml_cpu.blocks.format import Weight
from ggml_cpu.blocks.panels import get_blocks
from ggml_cpu.kernel import Function, fn
from ggml_cpu.target import LANES

PAIRS = 2 * WORDS  # values of a step
AT_ONCE = 512  # values of a row converted to bf16 at a time: 32 KiB of a panel
MANY = 48  # minimum columns for which conversion is cheaper than byte dot products


@fn
def count_steps(n):
    return (n + PAIRS - 1) // PAIRS


@fn
def pack_pairs(x, n, to):
    """Pack f32 values as steps of bf16 pairs; pad the last step with zeros."""
    for i in range(0, n, PAIRS):
        first, after = v.f32_load_n(x + 4 * i, n - i), n - i - LANES
        v.store(to + 2 * i, v.bf16_of(first, v.f32_load_n(x + 4 * (i + LANES), after)))


STEPS = Activations("bf16_steps", PAIRS, LINE, pack_pairs, WORDS, ROWS, find_tile)

# ---- panels


@fn
def value(words, i, scale, offset):
    return v.fma(v.to_f32((words >> (8 * i)) & 255), scale, offset)


@fn
def put(values, scale, offset, to):
    """Store four values of each row as two pairs of bf16; the `put` of Weight.values."""
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


def _unpack_rows(weight: Weight) -> tuple[Function, Function]:
    """Return `Weight.unpack` and `Weight.panel` for rows in place.

    `unpack` first packs panels of `weight` into spare bytes after the bf16 panel.
    """
    pack, put_pairs = weight.unpack, _put_pairs(weight)
    spare = weight.panel(AT_ONCE // weight.step)

    @fn
    def unpack(src, stride, rows, n, dst):
        panel = dst + panel_bytes(count_steps(n))
        for first in range(0, rows, LANES):
            pack(src + first * stride, stride, min(rows - first, LANES), n, panel)
            put_pairs(panel, n, dst + first // LANES * HALF)

    @fn
    def with_spare(steps):
        return panel_bytes(steps) + spare

    return unpack, with_spare


def _unpack_panels(weight: Weight) -> tuple[Function, Function]:
    """Return `Weight.unpack` and `Weight.panel` for rows that are repacked into panels."""
    put_pairs = _put_pairs(weight)

    @fn
    def unpack(src, stride, rows, n, dst):
        for first in range(0, rows, LANES):
            put_pairs(src + first // LANES * stride, n, dst + first // LANES * HALF)

    return unpack, panel_bytes


# ---- weights


def in_pairs(weight: Weight, panels: bool = False) -> Weight:
    """Return the variant of a quantized type, in place or in panels, for MANY or more columns."""
    unpack, panel = _unpack_panels(weight) if panels else _unpack_rows(weight)
    kind = weight.type
    assert AT_ONCE % (get_blocks(kind).blocks_per_group * kind.block_size) == 0
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
    """Return the AMX variant of bf16; `pairs` provides its dot products and interleaves panels."""
    interleave = pairs.unpack

    @fn
    def unpack(src, stride, rows, n, dst):
        interleave(src, stride, rows, n, dst)
        for at in range(dst + (n + 1) // 2 * ROW, dst + count_steps(n) * REGISTER, HALF):
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
