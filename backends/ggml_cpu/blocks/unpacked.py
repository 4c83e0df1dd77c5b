"""Matrix multiplication for types that unpack to bytes with one f32 scale per 16 or 32 values.

These are the types of one to three bits, decoded with tables or bit fields, and 4-bit floats. They
are decoded in chunks of 64 values.

Panel of a chunk: words [16][LANES], values plus OFFSET | scales f32 [64 / per][LANES]
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ggml_cpu import vocabulary as v
from ggml_cpu.blocks import walk
from ggml_cpu.blocks.activations import (
    CHUNK,
    CHUNK_BYTES,
    CHUNK_SCALE,
    CHUNK_SUM16,
    CHUNK_SUM32,
    OFFSET,
    Activations,
)
from ggml_cpu.blocks.dots import ANY, biased_dot, choose_dots, unsigned_dot
from ggml_cpu.blocks.format import Weight
from ggml_cpu.blocks.interleave import transpose_rows
from ggml_cpu.blocks.panels import WORD, Blocks, length
from ggml_cpu.blocks.tiles import panel_function
from ggml_cpu.kernel import Function, fn
from ggml_cpu.target import I8_BIAS, LANES
from ggml_py.types import BY_NAME, GGMLType

SQUARE = WORD * LANES  # bytes of LANES words of LANES rows
SCALES = CHUNK * LANES
# Offsets of the quarters of a row in a panel before its squares are transposed.
QUARTERS = tuple(16 * i // WORD * SQUARE + 16 * i % WORD for i in range(4))
K_BLOCK = 32  # chunks of a panel at a time: 40 KiB for vectors of 16 lanes


@dataclass(frozen=True)
class Decoder:
    """Functions (`@fn`) that read chunk j of a block in place.

    per           number of values that share a scale: 16 or 32
    load_bytes    load_bytes(block, j): i8x64 in 0..127, values plus `offset`, or magnitudes
    load_scales   load_scales(block, j): f32x4 or f32x2
    load_signs    load_signs(block, j): an int64 with a bit for each negative value; None: no signs
    cheap         True if decoding needs few registers, so that interleaving two chunks is faster
    whole         True if blocks have 256 values, one scale and no signs, and columns have one
                  scale per 256 values
    wide          True if load_bytes returns the values themselves, -127..127
    """

    type: GGMLType
    per: int
    load_bytes: Function
    load_scales: Function
    load_signs: Function | None = None
    offset: int = 0
    cheap: bool = False
    whole: bool = False
    wide: bool = False

    @property
    def chunks(self) -> int:
        """Number of chunks per block."""
        return self.type.block_size // CHUNK

    @property
    def groups(self) -> int:
        """Number of groups per chunk; the values of a group share a scale."""
        return CHUNK // self.per

    @property
    def panel_bytes(self) -> int:
        """Bytes of a chunk in a panel."""
        return SCALES + WORD * self.groups


@fn
def apply_signs(values, signs):
    """Return i8x64 values; each value with a set bit in the int64 `signs` is negated."""
    return v.select(v.mask64(signs), -values, values)


def _values(decoder: Decoder) -> Function:
    """Return values(block, j): the unscaled values of a chunk, i8x64."""
    load_bytes, load_signs, offset = decoder.load_bytes, decoder.load_signs, decoder.offset

    @fn
    def with_signs(block, j):
        return apply_signs(load_bytes(block, j), load_signs(block, j))

    @fn
    def with_offset(block, j):
        return load_bytes(block, j) - offset

    if decoder.wide:
        return load_bytes
    return with_offset if load_signs is None else with_signs


def _build_bias(decoder: Decoder) -> Function:
    """Return put_bias(values): the bytes of a panel."""

    @fn
    def flip(values):
        return values ^ I8_BIAS

    @fn
    def add_offset(values):
        return values + OFFSET

    return flip if decoder.wide else add_offset


@fn
def put_row(values, to):
    v.store(to + QUARTERS[0], v.quarter(values, 0))
    v.store(to + QUARTERS[1], v.quarter(values, 1))
    v.store(to + QUARTERS[2], v.quarter(values, 2))
    v.store(to + QUARTERS[3], v.quarter(values, 3))


@fn
def transpose_squares(panel):
    for square in range(panel, panel + SCALES, SQUARE):
        transpose_rows(square, WORD)


def _pack(decoder: Decoder) -> Function:
    chunks, groups, panel_bytes = decoder.chunks, decoder.groups, decoder.panel_bytes
    load_values, load_scales = _values(decoder), decoder.load_scales
    put_bias = _build_bias(decoder)

    @fn
    def pack(src, stride, rows, scales, dst):
        for j in range(chunks):
            for r in range(LANES):
                block = src + min(r, rows - 1) * stride
                put_row(put_bias(load_values(block, j)), dst + WORD * r)
                scales = load_scales(block, j)
                for g in range(groups):
                    v.st_f32(dst + SCALES + WORD * g + 4 * r, v.lane(scales, g))
            transpose_squares(dst)
            dst += panel_bytes

    return pack


def _bind_put_block(decoder: Decoder) -> Callable[[Function, int], Function]:
    words, groups, panel_bytes = decoder.per // 4, decoder.groups, decoder.panel_bytes
    chunks, less = decoder.chunks, float(-I8_BIAS if decoder.wide else -OFFSET)

    def build_put_block(put: Function, size: int) -> Function:
        @fn
        def put_block(_, w, to):
            for _ in range(chunks):
                for g in range(groups):
                    scale = v.f32_load(w + SCALES + WORD * g)
                    offset = scale * less
                    for i in range(words * g, words * g + words):
                        put(v.i8_load(w + WORD * i), scale, offset, to + size * i)
                w += panel_bytes
                to += CHUNK // 4 * size

        return put_block

    return build_put_block


def _tile(decoder: Decoder) -> Callable[[int], Function]:
    words, groups, panel_bytes = decoder.per // 4, decoder.groups, decoder.panel_bytes
    sums_at = CHUNK_SUM16 if decoder.per == 16 else CHUNK_SUM32
    dot4, times = (biased_dot, I8_BIAS // OFFSET) if decoder.wide else (unsigned_dot, 1)

    def tile(width: int) -> Function:
        size, _, begin, one, _, put_dots, *_ = choose_dots(width, words, ANY, dot4)

        @panel_function(width)
        def multiply(w, a, steps, out):
            sums = v.f32_regs(width)
            for _ in range(steps):
                for g in range(groups):
                    totals, dots = v.i32_regs(width), v.i32_regs(size)
                    for t in range(width):
                        totals[t] = v.i32_bcast(a + sums_at * width + 4 * (width * g + t)) * times
                    begin(dots, totals)
                    for i in range(words):
                        values = v.i8_load(w + WORD * (words * g + i))
                        one(dots, i, values, a, words * g + i)
                    put_dots(totals, dots)
                    scale = v.f32_load(w + SCALES + WORD * g)
                    at = a + CHUNK_SCALE * width + 4 * width * (2 * g // groups)
                    for t in range(width):
                        both = scale * v.f32_bcast(at + 4 * t)
                        sums[t] = v.fma(v.to_f32(totals[t]), both, sums[t])
                w += panel_bytes
                a += CHUNK_BYTES * width
            for t in range(width):
                v.store(out + WORD * t, sums[t])

        return multiply

    return tile


def _groups(per: int) -> tuple[Function, Function]:
    """Return functions that read scales and -OFFSET * sums of a column's chunk, f32 per group."""

    @fn
    def scales_of_16(a):
        return v.repeat_each(v.f32x2_load(a + CHUNK_SCALE), 2)

    @fn
    def scales_of_32(a):
        return v.f32x2_load(a + CHUNK_SCALE)

    @fn
    def sums_of_16(a):
        return v.to_f32(v.i32x4_load(a + CHUNK_SUM16))

    @fn
    def sums_of_32(a):
        return v.to_f32(v.i32x2_load(a + CHUNK_SUM32))

    if per == 16:
        return scales_of_16, sums_of_16
    return scales_of_32, sums_of_32


def _chunk(decoder: Decoder) -> Function:
    """Return add(block, j, a, total, less): accumulate the dot product of a chunk.

    `less` accumulates -OFFSET * scales * sums, from which `weight` corrects for `offset`.
    """
    load_bytes, load_scales, load_signs = (
        decoder.load_bytes,
        decoder.load_scales,
        decoder.load_signs,
    )
    words, offset = decoder.per // 4, decoder.offset
    column_scales, column_sums = _groups(decoder.per)

    @fn
    def as_it_is(block, j, x):
        return x

    @fn
    def with_signs(block, j, x):
        return apply_signs(x, load_signs(block, j))

    column = as_it_is if load_signs is None else with_signs

    @fn
    def add_wide(block, j, a, total, less):
        dots = v.dot4_i8(v.i32x16(0), load_bytes(block, j), v.i8x64_load(a))
        scales = column_scales(a) * load_scales(block, j)
        return v.fma(v.to_f32(dots), v.repeat_each(scales, words), total), less

    @fn
    def add(block, j, a, total, less):
        x = column(block, j, v.i8x64_load(a))
        dots = v.dot4(v.i32x16(0), load_bytes(block, j), x)
        scales = column_scales(a) * load_scales(block, j)
        if offset:
            less = v.fma(column_sums(a), scales, less)
        return v.fma(v.to_f32(dots), v.repeat_each(scales, words), total), less

    return add_wide if decoder.wide else add


def _add_four_chunks(decoder: Decoder) -> Function:
    """Return add(block, a, total, less) for blocks with one scale: integer sums of four chunks."""
    load_bytes, load_scales, size = decoder.load_bytes, decoder.load_scales, CHUNK_BYTES

    @fn
    def add_dots(block, j, a, dots):
        return v.dot4(dots, load_bytes(block, j), v.i8x64_load(a + size * j))

    @fn
    def load_sums(a):
        return v.i32x2_load(a + CHUNK_SUM32)

    @fn
    def add(block, a, total, less):
        even = add_dots(block, 2, a, add_dots(block, 0, a, v.i32x16(0)))
        odd = add_dots(block, 3, a, add_dots(block, 1, a, v.i32x16(0)))
        sums = (
            load_sums(a) + load_sums(a + size) + load_sums(a + 2 * size) + load_sums(a + 3 * size)
        )
        scale = v.ld_f32(a + CHUNK_SCALE) * v.lane(load_scales(block, 0), 0)
        return v.fma(scale, v.to_f32(even + odd), total), v.fma(scale, v.to_f32(sums), less)

    return add


def _block(decoder: Decoder) -> Function:
    """Return add(block, a, total, less): accumulate the dot product of a whole block."""
    if decoder.whole:
        return _add_four_chunks(decoder)
    chunks, add_chunk = decoder.chunks, _chunk(decoder)

    @fn
    def one_by_one(block, a, total, less):
        for j in range(chunks):
            total, less = add_chunk(block, j, a + CHUNK_BYTES * j, total, less)
        return total, less

    @fn
    def side_by_side(block, a, total, less):
        total, less = add_chunk(block, 0, a, total, less)
        other, less = add_chunk(block, 1, a + CHUNK_BYTES, v.f32x16(0.0), less)
        if chunks > 2:
            total, less = add_chunk(block, 2, a + 2 * CHUNK_BYTES, total, less)
            other, less = add_chunk(block, 3, a + 3 * CHUNK_BYTES, other, less)
        return total + other, less

    return side_by_side if decoder.cheap else one_by_one


def _decode(decoder: Decoder) -> Function:
    chunks, per = decoder.chunks, decoder.per
    load_values, load_scales = _values(decoder), decoder.load_scales

    @fn
    def decode(block, x):
        for j in range(chunks):
            values = v.to_f32(v.to_i32(load_values(block, j)))
            v.store(x, values * v.repeat_each(load_scales(block, j), per))
            x += 4 * CHUNK

    return decode


def one_scale(at: int) -> Function:
    """Return `load_scales` for blocks with a single scale, an f16 at `at`."""

    @fn
    def load_scales(block, j):
        return v.f32x2(v.ld_f16(block + at))

    return load_scales


def weight(
    name: str,
    activations: Activations,
    per: int,
    load_bytes: Function,
    load_scales: Function,
    load_signs: Function | None = None,
    *,
    offset: int = 0,
    cheap: bool = False,
    whole: bool = False,
    wide: bool = False,
    encode: Function | None = None,
) -> Weight:
    """Return a weight type (see Decoder); activations are in chunks; encode: see walk.py."""
    kind = BY_NAME[name]
    decoder = Decoder(kind, per, load_bytes, load_scales, load_signs, offset, cheap, whole, wide)
    dot = walk.dot(kind, activations, _block(decoder), decoder.groups, offset / OFFSET)
    blocks = Blocks(decoder.chunks * decoder.panel_bytes)
    return Weight(
        type=kind,
        dequantize=walk.dequantize(kind, _decode(decoder)),
        quantize=None if encode is None else walk.quantize(kind, encode),
        activations=activations,
        rows=LANES,
        panel=length(Blocks(decoder.panel_bytes)),
        unpack=walk.unpack(kind, blocks, _pack(decoder)),
        values=walk.values(kind, blocks, _bind_put_block(decoder)),
        tile=_tile(decoder),
        dot=dot,
        k_block=K_BLOCK,
    )
