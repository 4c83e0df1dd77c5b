"""Matrix multiplication for types with 256-value blocks, scales and minima per 16 values.

A value is d * scale * q - dmin * minimum; q has up to three bits. Two bits of q are in 64 bytes, 32
for each half of 128 values: in a half, bits 2 * j and 2 * j + 1 of byte i belong to value 32 * j +
i. So group 8 * half + 2 * j + s has the bytes from 16 * s on: words 4 * s to 4 * s + 3.
"""

from __future__ import annotations

from collections.abc import Callable

from ggml_cpu import vocabulary as v
from ggml_cpu.blocks import walk
from ggml_cpu.blocks.activations import OFFSETS_256, SCALE_256, SUMS16_256, Activations
from ggml_cpu.blocks.ahead import fetcher
from ggml_cpu.blocks.dots import both_fit, choose_dots
from ggml_cpu.blocks.format import Weight
from ggml_cpu.blocks.walk import adder
from ggml_cpu.kernel import Function, fn
from ggml_cpu.target import LANES
from ggml_py.types import BY_NAME


@fn
def scale_byte(words, i):
    """Return signed byte i of each word as i32."""
    return v.asr(words << (24 - 8 * i), 24)


@fn
def in_order(sixteen):
    """Widen i8x16 to i16x16 in the order of a column's sums of 16."""
    wide = v.to_i16(sixteen)
    return v.shuffle(wide, 0, 2, 1, 3, 4, 6, 5, 7, 8, 10, 9, 11, 12, 14, 13, 15)


def group_sums(width: int) -> Function:
    """Return add(words, a, i, less): less[t] += bytes of words * sums of groups 4 * i .. + 3."""

    @fn
    def add(words, a, i, less):
        pairs = v.as_i16(words)
        even, odd = v.asr(pairs << 8, 8), v.asr(pairs, 8)
        at = a + SUMS16_256 * width + 8 * width * i
        for t in range(width):
            x = v.as_i16(v.i32_bcast(at + 4 * t))
            y = v.as_i16(v.i32_bcast(at + 4 * (width + t)))
            less[t] = v.dot2(v.dot2(less[t], even, x), odd, y)

    return add


def from_offset(width: int, offset: int) -> Function:
    """Return begin(dots, a, n): set `dots` to -offset times the column sums of a group.

    n is the first word of the group in a column; offset is a power of two up to 32, or 0.
    """
    bits = 6 - offset.bit_length()

    @fn
    def begin(dots, a, n):
        if offset:
            for t in range(width):
                dots[t] = v.asr(v.i32_bcast(a + (OFFSETS_256 + n) * width + 4 * t), bits)

    return begin


def _add_block(
    largest: int,
    load_word: Function,
    scale_words: Function,
    factors: Function,
    panel_bytes: int,
    offset: int,
) -> Callable[[int], Function]:
    def add_block(width: int) -> Function:
        subtract, add_scaled = group_sums(width), adder(width)
        size, _, _, one, _, _, add_dots, words = choose_dots(width, 4, largest)
        fetch, at_once = fetcher(width, panel_bytes, 4), both_fit(width)
        minima = not (words and offset)
        begin = from_offset(width, 0 if minima else offset)

        @fn
        def add_16(w, a, half, j, s, scale, sums):
            """Add scale * (dot product of group 8 * half + 2 * j + s) to sums[t]."""
            dots = v.i32_regs(size)
            begin(dots, a, 32 * half + 8 * j + 4 * s)
            for i in range(4):
                values = v.as_i8(load_word(w, half, j, 4 * s + i))
                one(dots, i, values, a, 32 * half + 8 * j + 4 * s + i)
            add_dots(sums, dots, scale)

        @fn
        def add_both(w, a, half, j, s, scales, sums):
            """Add the groups at shifts j and j + 1; their scales are bytes s and s + 2."""
            one_of, other = v.i32_regs(size), v.i32_regs(size)
            begin(one_of, a, 32 * half + 8 * j + 4 * s)
            begin(other, a, 32 * half + 8 * j + 4 * s + 8)
            for i in range(4 * s, 4 * s + 4):
                n = 32 * half + 8 * j + i
                one(one_of, i - 4 * s, v.as_i8(load_word(w, half, j, i)), a, n)
                one(other, i - 4 * s, v.as_i8(load_word(w, half, j + 1, i)), a, n + 8)
            add_dots(sums, one_of, scale_byte(scales, s))
            add_dots(sums, other, scale_byte(scales, s + 2))

        @fn
        def add_32(w, a, half, j, s, scales, sums):
            if at_once:
                add_both(w, a, half, j, s, scales, sums)
            else:
                add_16(w, a, half, j, s, scale_byte(scales, s), sums)
                add_16(w, a, half, j + 1, s, scale_byte(scales, s + 2), sums)

        @fn
        def add_half(w, a, half, sums, less):
            first, first_minima = scale_words(w, 2 * half)
            second, second_minima = scale_words(w, 2 * half + 1)
            for s in range(2):
                fetch(w, 2 * half + s, 0)
                add_32(w, a, half, 0, s, first, sums)
                add_32(w, a, half, 2, s, second, sums)
            if minima:
                subtract(first_minima, a, 2 * half, less)
                subtract(second_minima, a, 2 * half + 1, less)

        @fn
        def add(d, w, a, out):
            sums, less = v.i32_regs(width), v.i32_regs(width)
            add_half(w, a, 0, sums, less)
            add_half(w, a, 1, sums, less)
            scale, minimum = factors(d, w)
            for t in range(width):
                total = v.to_f32(sums[t]) * scale
                if minima:
                    total = total - v.to_f32(less[t]) * minimum
                add_scaled(out, a, t, total)

        return add

    return add_block


def _bind_put_block(
    load_word: Function, scale_words: Function, factors: Function
) -> Callable[[Function, int], Function]:
    def build_put_block(put: Function, size: int) -> Function:
        @fn
        def put_16(w, half, j, s, scale, offset, to):
            for i in range(4 * s, 4 * s + 4):
                values = v.as_i8(load_word(w, half, j, i))
                put(values, scale, offset, to + size * (32 * half + 8 * j + i))

        @fn
        def put_block(d, w, to):
            scale, minimum = factors(d, w)
            for half in range(2):
                for j in range(4):
                    scales, minima = scale_words(w, 2 * half + j // 2)
                    for s in range(2):
                        byte = s + 2 * (j % 2)
                        q, less = scale_byte(scales, byte), scale_byte(minima, byte)
                        less_by = -minimum * v.to_f32(less)
                        put_16(w, half, j, s, scale * v.to_f32(q), less_by, to)

        return put_block

    return build_put_block


def _add_in_place(load_values: Function, load_scales: Function, load_factors: Function) -> Function:
    @fn
    def add_64(block, a, j, scales, sums):
        """Return sums + scale * dot over groups 2 * j and 2 * j + 1 of both halves."""
        x = v.concat(v.i8x32_load(a + 32 * j), v.i8x32_load(a + 32 * j + 128))
        dots = v.dot4(v.i32x16(0), load_values(block, j), x)
        return v.dot2(sums, v.as_i16(dots), v.as_i16(v.repeat_each(scales, 4)))

    @fn
    def add(block, a, total, less):
        scales, minima = load_scales(block)
        pairs = v.zext_i32(v.to_i16(scales))
        sums = add_64(block, a, 0, v.shuffle(pairs, 0, 1, 8, 9), v.i32x16(0))
        sums = add_64(block, a, 1, v.shuffle(pairs, 2, 3, 10, 11), sums)
        sums = add_64(block, a, 2, v.shuffle(pairs, 4, 5, 12, 13), sums)
        sums = add_64(block, a, 3, v.shuffle(pairs, 6, 7, 14, 15), sums)
        offset = v.dot2(v.i32x8(0), in_order(minima), v.i16x16_load(a + SUMS16_256))
        d, dmin = load_factors(block)
        scale = v.ld_f32(a + SCALE_256)
        return v.fma(d * scale, v.to_f32(sums), total), v.fma(dmin * scale, v.to_f32(offset), less)

    return add


def _decode(load_values: Function, load_scales: Function, load_factors: Function) -> Function:
    @fn
    def put(values, dst, block, u):
        """Store the 16 values of group u as f32."""
        d, dmin = load_factors(block)
        scales, minima = load_scales(block)
        x = v.to_f32(v.zext_i32(values)) * (d * v.float32(v.lane(scales, u)))
        v.store(dst + 64 * u, x - dmin * v.float32(v.lane(minima, u)))

    @fn
    def decode(block, x):
        for j in range(4):
            values = load_values(block, j)
            put(v.quarter(values, 0), x, block, 2 * j)
            put(v.quarter(values, 1), x, block, 2 * j + 1)
            put(v.quarter(values, 2), x, block, 2 * j + 8)
            put(v.quarter(values, 3), x, block, 2 * j + 9)

    return decode


def weight(
    name: str,
    largest: int,
    activations: Activations,
    panel: tuple[Function, Function],
    load_word: Function,
    scale_words: Function,
    factors: Function,
    load_values: Function,
    load_scales: Function,
    load_factors: Function,
    encode: Function,
    offset: int = 0,
) -> Weight:
    """Return a weight type of this family, q at most `largest`; scales and minima are signed bytes.

    panel, encode: see walk.py.
    Functions of a panel block:
    load_word(w, half, j, i): values of word i of a half at shift j, one per byte.
    scale_words(w, i): scales and minima of groups 4 * i to 4 * i + 3.
    factors(d, w): d and dmin; d is stored in the block's scales (panels.py) or its words.
    Functions of a block in place:
    load_values(block, j): values at shift j, 32 of each half.
    load_scales(block): all scales and minima, i8x16 each.
    load_factors(block): d and dmin.
    offset: a power of two if minima are offset * scales and dmin is d, else 0.
    """
    kind, in_place = BY_NAME[name], (load_values, load_scales, load_factors)
    panel_bytes = kind.type_size * LANES
    add_block = _add_block(largest, load_word, scale_words, factors, panel_bytes, offset)
    tile = walk.tile(kind, activations, add_block)
    dot = walk.dot(kind, activations, _add_in_place(*in_place), 8, -1.0)
    build_put_block = _bind_put_block(load_word, scale_words, factors)
    return walk.weight(
        kind, activations, panel, tile, dot, _decode(*in_place), encode, build_put_block
    )
