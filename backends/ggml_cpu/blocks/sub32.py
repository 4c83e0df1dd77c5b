"""Matrix multiplication for types with 256-value blocks, 6-bit scales and minima per 32 values.

A block starts with d f16 | dmin f16 | scales, 12 bytes; a value is d * scale * q - dmin * min. The
12 bytes are three words of four bytes (ggml-quants.c:get_scale_min_k4):
s0: six bits of scales 0..3; above them the top two bits of scales 4..7
s1: the same for minima
s2: low four bits of scales 4..7 and, above them, of minima 4..7
A panel keeps the word order of blocks: word i of LANES rows is one vector, at i * WORD.
"""

from __future__ import annotations

from collections.abc import Callable

from ggml_cpu import vocabulary as v
from ggml_cpu.blocks import search, walk
from ggml_cpu.blocks.activations import SCALE_256, SUMS32_256, Activations
from ggml_cpu.blocks.ahead import fetcher
from ggml_cpu.blocks.dots import both_fit, choose_dots
from ggml_cpu.blocks.format import Weight
from ggml_cpu.blocks.interleave import word_by_word
from ggml_cpu.blocks.panels import WORD
from ggml_cpu.blocks.walk import adder
from ggml_cpu.kernel import Function, fn
from ggml_cpu.target import LANES
from ggml_py.types import BY_NAME

SIX_BITS, FOUR_BITS, TWO_BITS = 0x3F3F3F3F, 0x0F0F0F0F, 0x30303030


@fn
def later(s, s2):
    """Return scales (minima) 4..7, one per byte, from s0 (s1) and s2 with their bits lowest."""
    return (s2 & FOUR_BITS) | ((s >> 2) & TWO_BITS)


@fn
def load_scales(block):
    """Return the eight scales of a block in place as the bytes of an int64."""
    s0 = v.ld_u32(block + 4)
    return (s0 & SIX_BITS) | (later(s0, v.ld_u32(block + 12)) << 32)


@fn
def load_minima(block):
    s1 = v.ld_u32(block + 8)
    return (s1 & SIX_BITS) | (later(s1, v.ld_u32(block + 12) >> 4) << 32)


@fn
def int64_to_bytes(eight):
    """Return the bytes of an int64 as i8x8."""
    return v.low(v.as_i8(v.i64x2(eight)))


@fn
def even_bytes(words):
    """Return bytes 0 and 2 of each word as i16."""
    return v.as_i16(words & 0x00FF00FF)


def _add_block(load_value: Function, largest: int, panel_bytes: int) -> Callable[[int], Function]:
    def add_block(width: int) -> Function:
        add_scaled, fetch = adder(width), fetcher(width, panel_bytes, 4, 2)
        size, run, _, one, _, _, add_dots, _ = choose_dots(width, 8, largest)
        at_once = both_fit(width)

        @fn
        def add_run(w, a, j, high, first, scale, sums):
            """Add scale * dot to sums[t], over `run` words of chunk j from word `first` on."""
            dots = v.i32_regs(size)
            for i in range(first, first + run):
                values = load_value(w, j, high, i)
                one(dots, i, values, a, 16 * j + 8 * high + i)
            add_dots(sums, dots, scale)

        @fn
        def add_32(w, a, j, high, scale, sums):
            """Add scale * dot to sums[t], over the low or the high values of chunk j."""
            add_run(w, a, j, high, 0, scale, sums)
            if run < 8:
                add_run(w, a, j, high, run, scale, sums)

        @fn
        def add_64(w, a, j, scales, sums):
            """Add all values of chunk j; their scales are the low two bytes of `scales`."""
            low, high = v.i32_regs(size), v.i32_regs(size)
            for i in range(8):
                one(low, i, load_value(w, j, 0, i), a, 16 * j + i)
                one(high, i, load_value(w, j, 1, i), a, 16 * j + 8 + i)
            add_dots(sums, low, scales & 255)
            add_dots(sums, high, (scales >> 8) & 255)

        @fn
        def add_minima(s1, s2, a, less):
            """Add minima * (sums of column t) to less[t]."""
            first, second = s1 & SIX_BITS, later(s1, s2 >> 4)
            for i in range(4):
                pair = even_bytes((first if i < 2 else second) >> (8 * (i % 2)))
                at = a + SUMS32_256 * width + 4 * width * i
                for t in range(width):
                    less[t] = v.dot2(less[t], pair, v.as_i16(v.i32_bcast(at + 4 * t)))

        @fn
        def add(_, w, a, out):
            sums, less = v.i32_regs(width), v.i32_regs(width)
            both, s0 = v.i32_load(w), v.i32_load(w + WORD)
            s1, s2 = v.i32_load(w + 2 * WORD), v.i32_load(w + 3 * WORD)
            scales = s0 & SIX_BITS
            for j in range(4):
                fetch(w, j, 0)
                if j == 2:
                    scales = later(s0, s2)
                if at_once:
                    fetch(w, j, 1)
                    add_64(w, a, j, scales, sums)
                else:
                    add_32(w, a, j, 0, scales & 255, sums)
                    fetch(w, j, 1)
                    add_32(w, a, j, 1, (scales >> 8) & 255, sums)
                scales = scales >> 16
            add_minima(s1, s2, a, less)
            scale = v.f16_to_f32(v.to_i16(both))
            minimum = v.f16_to_f32(v.to_i16(both >> 16))
            for t in range(width):
                add_scaled(out, a, t, v.to_f32(sums[t]) * scale - v.to_f32(less[t]) * minimum)

        return add

    return add_block


def _bind_put_block(load_value: Function) -> Callable[[Function, int], Function]:
    def build_put_block(put: Function, size: int) -> Function:
        @fn
        def put_32(w, j, high, scale, offset, to):
            """Call `put` for the low or the high values of chunk j."""
            for i in range(8):
                put(load_value(w, j, high, i), scale, offset, to + size * (16 * j + 8 * high + i))

        @fn
        def put_block(_, w, to):
            both, s0 = v.i32_load(w), v.i32_load(w + WORD)
            s1, s2 = v.i32_load(w + 2 * WORD), v.i32_load(w + 3 * WORD)
            d, d_min = v.f16_to_f32(v.to_i16(both)), v.f16_to_f32(v.to_i16(both >> 16))
            scales, minima = s0 & SIX_BITS, s1 & SIX_BITS
            for j in range(4):
                if j == 2:
                    scales, minima = later(s0, s2), later(s1, s2 >> 4)
                low, less = v.to_f32(scales & 255), v.to_f32(minima & 255)
                put_32(w, j, 0, d * low, -d_min * less, to)
                high, less = v.to_f32((scales >> 8) & 255), v.to_f32((minima >> 8) & 255)
                put_32(w, j, 1, d * high, -d_min * less, to)
                scales, minima = scales >> 16, minima >> 16

        return put_block

    return build_put_block


def _add_in_place(load_quads: Function) -> Function:
    @fn
    def add_half(block, a, half, scales, sums):
        """Return sums + scale * dot over four sub-blocks of a block in place, 128 values."""
        low, high = load_quads(block, half)
        x = v.concat(v.i8x32_load(a), v.i8x32_load(a + 64))
        y = v.concat(v.i8x32_load(a + 32), v.i8x32_load(a + 96))
        zero = v.i32x16(0)
        low_scale = v.shuffle(scales, 0, 0, 0, 0, 0, 0, 0, 0, 2, 2, 2, 2, 2, 2, 2, 2)
        high_scale = v.shuffle(scales, 1, 1, 1, 1, 1, 1, 1, 1, 3, 3, 3, 3, 3, 3, 3, 3)
        sums = sums + v.dot4(zero, low, x) * low_scale
        return sums + v.dot4(zero, high, y) * high_scale

    @fn
    def add(block, a, total, less):
        scales = v.zext_i32(int64_to_bytes(load_scales(block)))
        sums = add_half(block, a, 0, v.low(scales), v.i32x16(0))
        sums = add_half(block, a + 128, 1, v.high(scales), sums)
        minima = v.shuffle(v.zext_i16(int64_to_bytes(load_minima(block))), 0, 2, 1, 3, 4, 6, 5, 7)
        subtract = v.dot2(v.i32x4(0), minima, v.i16x8_load(a + SUMS32_256))
        scale = v.ld_f32(a + SCALE_256)
        total = v.fma(v.ld_f16(block) * scale, v.to_f32(sums), total)
        return total, v.fma(v.ld_f16(block + 2) * scale, v.to_f32(subtract), less)

    return add


@fn
def load_factors(block, s):
    """Return (d * scale, dmin * min) of sub-block s."""
    d = v.ld_f16(block) * v.float32((load_scales(block) >> (8 * s)) & 255)
    return d, v.ld_f16(block + 2) * v.float32((load_minima(block) >> (8 * s)) & 255)


def _decode(load_quads: Function) -> Function:
    @fn
    def put(values, dst, block, s):
        """Store the 32 values of sub-block s as f32."""
        d, minimum = load_factors(block, s)
        x = v.to_f32(v.zext_i32(values))
        v.store(dst + 128 * s, x * d - minimum)

    @fn
    def decode(block, x):
        for half in range(2):
            low, high = load_quads(block, half)
            put(v.low(low), x, block, 4 * half)
            put(v.low(high), x, block, 4 * half + 1)
            put(v.high(low), x, block, 4 * half + 2)
            put(v.high(high), x, block, 4 * half + 3)

    return decode


@fn
def store_group(scales, g, scale, minimum):
    """Store scale and minimum of group g in the 12 bytes; call it for groups 0 to 7 in order.

    Groups 4 to 7 share bytes with groups 0 to 3.
    """
    if g < 4:
        v.st_i8(scales + g, scale)
        v.st_i8(scales + 4 + g, minimum)
    else:
        v.st_i8(scales + 4 + g, (scale & 15) | (minimum & 15) << 4)
        v.st_i8(scales + g - 4, v.ld_u8(scales + g - 4) | (scale >> 4) << 6)
        v.st_i8(scales + g, v.ld_u8(scales + g) | (minimum >> 4) << 6)


def encoder(q_max: float, start: float, n_steps: int) -> tuple[Function, Function]:
    """Return two functions that encode a block (see search.py:with_minimum).

    store_scales(x, block)       store d, dmin, scales and minima; call it first
    levels(x, block, g, part)    levels 0 .. q_max of 16 values, half `part` of sub-block g
    """

    @fn
    def find_scale_and_minimum(x):
        squares = v.float32(0.0)
        for i in range(32):
            squares += v.ld_f32(x + 4 * i) * v.ld_f32(x + 4 * i)
        mean = v.float32(v.sqrtf(squares / v.float32(32.0)))
        return search.with_minimum(x, 32, mean, q_max, start, 0.1, n_steps, False)

    @fn
    def store(block, g, scale, minimum):
        store_group(block + 4, g, scale, minimum)

    @fn
    def levels(x, block, g, part):
        scale, minimum = load_factors(block, g)
        values = v.f32x16_load(x + 128 * g + 64 * part)
        return search.levels_above(values, scale, minimum, q_max)

    return search.scales_and_minima(find_scale_and_minimum, 8, 63.0, 0, store), levels


def weight(
    name: str,
    largest: int,
    activations: Activations,
    load_value: Function,
    load_quads: Function,
    encode: Function,
) -> Weight:
    """Return a weight type of this family, q at most `largest`.

    load_value(w, j, high, i): word i of the 32 low or high values of 64-value chunk j of a panel.
    load_quads(block, half): values of sub-blocks 0, 2 and 1, 3 of half a block in place.
    encode(x, block): see walk.py.
    """
    kind = BY_NAME[name]
    add_block = _add_block(load_value, largest, kind.type_size * LANES)
    tile = walk.tile(kind, activations, add_block)
    dot = walk.dot(kind, activations, _add_in_place(load_quads), 4, -1.0)
    panel, decode, build_put_block = (
        word_by_word(kind.type_size),
        _decode(load_quads),
        _bind_put_block(load_value),
    )
    return walk.weight(kind, activations, panel, tile, dot, decode, encode, build_put_block)
