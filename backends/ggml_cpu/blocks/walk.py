"""Loops over the blocks of a row in place, a panel and a column.

Each function has the name of the `Format` or `Weight` field that it returns. Its function arguments
are `@fn`.
"""

from __future__ import annotations

from collections.abc import Callable

from ggml_cpu import vocabulary as v
from ggml_cpu.blocks.activations import SCALE_256, Activations
from ggml_cpu.blocks.ahead import fetch_ahead
from ggml_cpu.blocks.format import Weight
from ggml_cpu.blocks.panels import WORD, Blocks, get_blocks, length, places
from ggml_cpu.blocks.tiles import panel_function
from ggml_cpu.kernel import Function, fn
from ggml_cpu.target import LANES
from ggml_py.types import GGMLType


@fn
def _load_4(address):
    return v.i8x4_load(address)


@fn
def _load_8(address):
    return v.i8x8_load(address)


@fn
def _load_16(address):
    return v.i8x16_load(address)


load_bytes = {16: _load_16, 8: _load_8, 4: _load_4}[LANES]  # LANES signed bytes


def dequantize(kind: GGMLType, decode: Function) -> Function:
    """Return `Format.dequantize`; decode(block, x) converts one block to f32."""
    elements, size = kind.block_size, kind.type_size

    @fn
    def from_blocks(src, n, dst):
        for _ in range(n // elements):
            decode(src, dst)
            src += size
            dst += 4 * elements

    return from_blocks


def quantize(kind: GGMLType, encode: Function) -> Function:
    """Return `Format.quantize`; encode(x, block) converts f32 to one block."""
    elements, size = kind.block_size, kind.type_size

    @fn
    def to_blocks(src, n, dst):
        for _ in range(n // elements):
            encode(src, dst)
            src += 4 * elements
            dst += size

    return to_blocks


def unpack(kind: GGMLType, blocks: Blocks, pack: Function) -> Function:
    """Return `Weight.unpack`; pack(src, stride, rows, scales, words) packs one block."""
    elements, size, (block_addresses, next_group) = kind.block_size, kind.type_size, places(blocks)

    @fn
    def to_panel(src, stride, rows, n, dst):
        for i in range(n // elements):
            scales, words = block_addresses(dst, i)
            pack(src, stride, rows, scales, words)
            src += size
            dst = next_group(dst, i)

    return to_panel


def row(kind: GGMLType, blocks: Blocks, gather: Function) -> Function:
    """Return `Weight.row`; gather(scales, words, r, block) restores one block of row r."""
    elements, size, (block_addresses, next_group) = kind.block_size, kind.type_size, places(blocks)

    @fn
    def from_panel(panel, r, n, dst):
        for i in range(n // elements):
            scales, words = block_addresses(panel, i)
            gather(scales, words, r, dst)
            panel = next_group(panel, i)
            dst += size

    return from_panel


def values(
    kind: GGMLType, blocks: Blocks, build_put_block: Callable[[Function, int], Function]
) -> Callable[[Function, int], Function]:
    """Return `Weight.values`; build_put_block(put, size) returns put_block(scales, words, to)."""
    elements, (block_addresses, next_group) = kind.block_size, places(blocks)

    def build_walk(put: Function, size: int) -> Function:
        put_block = build_put_block(put, size)

        @fn
        def walk(panel, n, to):
            for i in range(n // elements):
                scales, words = block_addresses(panel, i)
                put_block(scales, words, to)
                panel = next_group(panel, i)
                to += elements // 4 * size

        return walk

    return build_walk


def tile(
    kind: GGMLType, activations: Activations, add_block: Callable[[int], Function]
) -> Callable[[int], Function]:
    """Return `Weight.tile`; add_block(width) returns add(scales, words, columns, out).

    `add` adds the dot products of one step to `out`.
    """
    (block_addresses, next_group), column_bytes = places(get_blocks(kind)), activations.block_bytes

    def build_multiply(width: int) -> Function:
        add = add_block(width)

        @panel_function(width)
        def multiply(w, a, steps, out):
            for t in range(width):
                v.store(out + WORD * t, v.f32(0.0))
            for i in range(steps):
                scales, words = block_addresses(w, i)
                add(scales, words, a, out)
                w = next_group(w, i)
                a += column_bytes * width

        return multiply

    return build_multiply


def adder(width: int) -> Function:
    """Return add(out, a, t, x): add x times the scale of column t to the sums of column t."""

    @fn
    def add(out, a, t, x):
        scale = v.f32_bcast(a + SCALE_256 * width + 4 * t)
        v.store(out + WORD * t, v.fma(scale, x, v.f32_load(out + WORD * t)))

    return add


@fn
def two_zeros():
    return v.f32x2(0.0)


@fn
def four_zeros():
    return v.f32x4(0.0)


@fn
def eight_zeros():
    return v.f32x8(0.0)


ZEROS = {2: two_zeros, 4: four_zeros, 8: eight_zeros}


def dot(
    kind: GGMLType, activations: Activations, add_block: Function, lanes: int, part: float
) -> Function:
    """Return `Weight.dot`; add_block(block, column, total, less) returns the new (total, less).

    `total` is f32x16, `less` has `lanes` f32 lanes; the result is sum(total) + part * sum(less).
    """
    elements, size, zeros = kind.block_size, kind.type_size, ZEROS[lanes]
    column_bytes = elements // activations.elements * activations.block_bytes

    @fn
    def multiply(src, stride, rows, a, n, out):
        total, less = v.f32x16(0.0), zeros()
        for _ in range(n // elements):
            fetch_ahead(src, size)
            total, less = add_block(src, a, total, less)
            src += size
            a += column_bytes
        v.st_f32(out, v.vsum(total) + v.float32(part) * v.vsum(less))

    return multiply


def weight(
    kind: GGMLType,
    activations: Activations,
    panel: tuple[Function, Function],
    tile: Callable[[int], Function],
    dot: Function,
    decode: Function,
    encode: Function | None,
    build_put_block: Callable[[Function, int], Function],
) -> Weight:
    """Return a repacked weight type with panels of panels.py, which are as large as the rows.

    panel: `pack` and `gather`, see `unpack` and `row`; build_put_block: see `values`.
    """
    blocks = get_blocks(kind)
    return Weight(
        type=kind,
        dequantize=dequantize(kind, decode),
        quantize=None if encode is None else quantize(kind, encode),
        activations=activations,
        rows=LANES,
        panel=length(blocks),
        tile=tile,
        dot=dot,
        unpack=unpack(kind, blocks, panel[0]),
        row=row(kind, blocks, panel[1]),
        values=values(kind, blocks, build_put_block),
    )
