"""q6_K: blocks of 256, 6-bit values offset by 32, int8 scales per 16 (ggml-common.h:block_q6_K).

Block, 210 bytes: low four bits u8 [128] | top two bits u8 [64] | scales i8 [16] | d f16
Each half of 128 values has 64 bytes of low bits (A, then B, 32 bytes each) and 32 bytes of top bits
(H). Byte i of A has values i and i + 64, byte i of B values i + 32 and i + 96; byte i of H has two
bits for each of the four.
Panel block: d f16 [LANES], scales, words [4][LANES] | four parts with 16 bytes each of A, B and H,
two per half: words A H A H A H A H B B B B [LANES]. So kernels read cache lines in order.
"""

from __future__ import annotations

from ggml_cpu import vocabulary as v
from ggml_cpu.blocks import walk
from ggml_cpu.blocks.activations import SCALE_256, SUMS16_256
from ggml_cpu.blocks.ahead import fetcher
from ggml_cpu.blocks.dots import both_fit, choose_dots
from ggml_cpu.blocks.format import register
from ggml_cpu.blocks.interleave import interleave_halves, interleave_words
from ggml_cpu.blocks.panels import WORD
from ggml_cpu.blocks.rounding import TINY
from ggml_cpu.blocks.search import largest_scale, levels_around, symmetric
from ggml_cpu.blocks.sub16 import from_offset, group_sums, in_order, scale_byte
from ggml_cpu.blocks.walk import adder
from ggml_cpu.kernel import Function, fn
from ggml_cpu.quants.q8_K import ACTIVATIONS
from ggml_cpu.target import LANES, TILE
from ggml_py.types import BY_NAME

TOP, SCALES, D = 128, 192, 208  # offsets in a block
VALUES = 4 * WORD
PART = 12 * WORD
SECOND = 8 * WORD  # offset of B in a part


@fn
def pack(src, stride, rows, d, dst):
    interleave_halves(src + D, stride, rows, d)
    interleave_words(src + SCALES, stride, rows, 4, dst, WORD)
    for i in range(4):
        low, to = src + 64 * (i >> 1) + 16 * (i & 1), dst + VALUES + PART * i
        interleave_words(low, stride, rows, 4, to, 2 * WORD)
        interleave_words(src + TOP + 16 * i, stride, rows, 4, to + WORD, 2 * WORD)
        interleave_words(low + 32, stride, rows, 4, to + SECOND, WORD)


@fn
def gather(d, panel, r, dst):
    v.st_u16(dst + D, v.ld_u16(d + 2 * r))
    for i in range(4):
        v.st_i32(dst + SCALES + 4 * i, v.ld_i32(panel + WORD * i + 4 * r))
    for i in range(16):
        part = panel + VALUES + PART * (i // 4) + 4 * r
        at, low = part + 2 * WORD * (i % 4), dst + 64 * (i // 8) + 4 * (i % 8)
        v.st_i32(low, v.ld_i32(at))
        v.st_i32(dst + TOP + 4 * i, v.ld_i32(at + WORD))
        v.st_i32(low + 32, v.ld_i32(part + SECOND + WORD * (i % 4)))


Q6_K = BY_NAME["q6_K"]


@fn
def load_word(w, which, i):
    """Return word i of 16 values of a part, low and top bits combined.

    which: low nibbles of A, low nibbles of B, high nibbles of A, high nibbles of B.
    """
    at = w + 2 * WORD * i
    if which & 1:
        at = w + SECOND + WORD * i
    low = v.i32_load(at) >> ((which & 2) << 1)
    top = (v.i32_load(w + 2 * WORD * i + WORD) >> (2 * which)) << 4
    return v.as_i8((low & 0x0F0F0F0F) | (top & 0x30303030))


def add_block(width: int) -> Function:
    subtract, add_scaled = group_sums(width), adder(width)
    size, run, _, one, _, _, add_dots, words = choose_dots(width, 4, 63)
    at_once, begin = both_fit(width), from_offset(width, 32 if words else 0)
    parts = 1 if width == TILE else 4  # prefetches per quarter; full tiles are compute-bound
    fetch = fetcher(width, Q6_K.type_size * LANES, 4 * parts)

    @fn
    def fetch_more(w, i, j):
        if parts > 1:
            fetch(w, parts * i + j, 0)

    @fn
    def add_run(w, a, n, which, first, scale, sums):
        """Add scale * dot to sums[t], over `run` words of add_16 from word `first` on."""
        dots = v.i32_regs(size)
        begin(dots, a, n)
        for i in range(first, first + run):
            one(dots, i, load_word(w, which, i), a, n + i)
        add_dots(sums, dots, scale)

    @fn
    def add_16(w, a, n, which, scale, sums):
        """Add scale * dot over 16 values (see load_word) to sums[t]; n: their first column word."""
        add_run(w, a, n, which, 0, scale, sums)
        if run < 4:
            add_run(w, a, n, which, run, scale, sums)

    @fn
    def add_both(w, a, n, which, low_scale, high_scale, sums):
        """Add the values `which` and `which + 2`: low and high nibbles of A or B."""
        low, high = v.i32_regs(size), v.i32_regs(size)
        begin(low, a, n)
        begin(high, a, n + 16)
        for i in range(4):
            one(low, i, load_word(w, which, i), a, n + i)
            one(high, i, load_word(w, which + 2, i), a, n + 16 + i)
        add_dots(sums, low, low_scale)
        add_dots(sums, high, high_scale)

    @fn
    def offsets(w, a, sums):
        """Subtract 32 * scales * (sums of column t) from sums[t]."""
        minus = v.i32_regs(width)
        for i in range(4):
            subtract(v.i32_load(w + WORD * i), a, i, minus)
        for t in range(width):
            sums[t] = sums[t] - (minus[t] << 5)

    @fn
    def add(d, w, a, out):
        sums = v.i32_regs(width)
        for i in range(4):
            half, s = i >> 1, i & 1
            first, second = v.i32_load(w + 2 * WORD * half), v.i32_load(w + 2 * WORD * half + WORD)
            values, n = w + VALUES + PART * i, 32 * half + 4 * s
            fetch(w, parts * i, 0)
            if at_once:
                fetch_more(w, i, 1)
                add_both(values, a, n, 0, scale_byte(first, s), scale_byte(second, s), sums)
                fetch_more(w, i, 2)
                fetch_more(w, i, 3)
                low, high = scale_byte(first, s + 2), scale_byte(second, s + 2)
                add_both(values, a, n + 8, 1, low, high, sums)
            else:
                add_16(values, a, n, 0, scale_byte(first, s), sums)
                fetch_more(w, i, 1)
                add_16(values, a, n + 8, 1, scale_byte(first, s + 2), sums)
                fetch_more(w, i, 2)
                add_16(values, a, n + 16, 2, scale_byte(second, s), sums)
                fetch_more(w, i, 3)
                add_16(values, a, n + 24, 3, scale_byte(second, s + 2), sums)
        if not words:
            offsets(w, a, sums)
        factor = v.f16_load(d)
        for t in range(width):
            add_scaled(out, a, t, v.to_f32(sums[t]) * factor)

    return add


def build_put_block(put: Function, size: int) -> Function:
    @fn
    def put_16(w, which, scale, to):
        offset = scale * -32.0
        for i in range(4):
            put(load_word(w, which, i), scale, offset, to + size * i)

    @fn
    def put_block(d, w, to):
        factor = v.f16_load(d)
        for i in range(4):
            half, s = i >> 1, i & 1
            first, second = v.i32_load(w + 2 * WORD * half), v.i32_load(w + 2 * WORD * half + WORD)
            values, at = w + VALUES + PART * i, to + size * (32 * half + 4 * s)
            put_16(values, 0, factor * v.to_f32(scale_byte(first, s)), at)
            put_16(values, 1, factor * v.to_f32(scale_byte(first, s + 2)), at + 8 * size)
            put_16(values, 2, factor * v.to_f32(scale_byte(second, s)), at + 16 * size)
            put_16(values, 3, factor * v.to_f32(scale_byte(second, s + 2)), at + 24 * size)

    return put_block


@fn
def load_values(block, half):
    """Return the first and the last 64 values of a half in place, as levels 0..63."""
    packed = v.i8x64_load(block + 64 * half)
    top = v.as_i16(v.i8x32_load(block + TOP + 32 * half))
    first = (packed & 15) | (v.as_i8(v.concat(top << 4, top << 2)) & 0x30)
    return first, ((packed >> 4) & 15) | (v.as_i8(v.concat(top, top >> 2)) & 0x30)


@fn
def add_half(block, a, half, first_scales, last_scales, sums):
    """Return sums + scale * dot over 128 values in place."""
    first, last = load_values(block, half)
    zero = v.i32x16(0)
    sums = sums + v.dot4(zero, first, v.i8x64_load(a)) * v.repeat_each(first_scales, 4)
    return sums + v.dot4(zero, last, v.i8x64_load(a + 64)) * v.repeat_each(last_scales, 4)


@fn
def add_in_place(block, a, total, less):
    scales = v.i8x16_load(block + SCALES)
    wide, zero = v.to_i32(scales), v.i32x16(0)
    sums = add_half(block, a, 0, v.quarter(wide, 0), v.quarter(wide, 1), zero)
    sums = add_half(block, a + 128, 1, v.quarter(wide, 2), v.quarter(wide, 3), sums)
    offset = v.dot2(v.i32x8(0), in_order(scales), v.i16x16_load(a + SUMS16_256))
    scale = v.ld_f16(block + D) * v.ld_f32(a + SCALE_256)
    return v.fma(scale, v.to_f32(sums), total), v.fma(scale, v.to_f32(offset), less)


@fn
def decode(block, x):
    scales = v.to_f32(v.to_i32(v.i8x16_load(block + SCALES))) * v.ld_f16(block + D)
    for half in range(2):
        first, last = load_values(block, half)
        eight = v.high(scales) if half else v.low(scales)
        to = x + 512 * half
        v.store(to, v.to_f32(v.to_i32(first - 32)) * v.repeat_each(v.low(eight), 16))
        v.store(to + 256, v.to_f32(v.to_i32(last - 32)) * v.repeat_each(v.high(eight), 16))


@fn
def find_scale(x, spare):
    return symmetric(x, 32.0)


find_largest = largest_scale(find_scale, 16)


@fn
def store_scales(x, block):
    top = find_largest(x, block)
    factor = v.float32(-128.0) / top if abs(top) >= TINY else v.float32(0.0)
    v.st_f16(block + D, v.float32(1.0) / factor if abs(top) >= TINY else v.float32(0.0))
    for g in range(16):
        scale = int(v.rintf(factor * find_scale(x + 64 * g, block)))
        v.st_i8(block + SCALES + g, min(127, scale))


@fn
def levels(x, block, g):
    scale = v.ld_f16(block + D) * v.float32(v.ld_i8(block + SCALES + g))
    return levels_around(v.f32x16_load(x + 64 * g), scale, 32.0)


@fn
def encode(x, block):
    store_scales(x, block)
    for half in range(2):
        for part in range(2):
            upper = v.i32x16(0)
            for j in range(2):
                g = 8 * half + 2 * j + part
                low, high = levels(x, block, g), levels(x, block, g + 4)
                packed = (low & 15) | ((high & 15) << 4)
                v.store(block + 64 * half + 32 * j + 16 * part, v.to_i8(packed))
                upper = upper | ((low >> 4) << (2 * j)) | ((high >> 4) << (2 * j + 4))
            v.store(block + TOP + 32 * half + 16 * part, v.to_i8(upper))


tile = walk.tile(Q6_K, ACTIVATIONS, add_block)
dot = walk.dot(Q6_K, ACTIVATIONS, add_in_place, 8, -32.0)
panel = pack, gather
register(walk.weight(Q6_K, ACTIVATIONS, panel, tile, dot, decode, encode, build_put_block))
