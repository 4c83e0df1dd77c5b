"""Matrix multiplication for types with blocks of 32 values, one scale and an optional minimum.

Activations have blocks of 32. A panel block stores the values of LANES rows interleaved by 32-bit
word. Words contain bytes, or nibbles: low nibbles are values 0..15, high nibbles 16..31.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from ggml_cpu import vocabulary as v
from ggml_cpu.blocks import walk
from ggml_cpu.blocks.activations import SCALE_32, SUM8_32, SUM_32, Activations
from ggml_cpu.blocks.ahead import SIDE_BY_SIDE, computes_longer, fetch_ahead, fetcher
from ggml_cpu.blocks.dots import choose_dots, unsigned_dot
from ggml_cpu.blocks.format import Weight
from ggml_cpu.blocks.panels import WORD, get_blocks, places
from ggml_cpu.blocks.tiles import panel_function
from ggml_cpu.kernel import Function, fn
from ggml_cpu.target import LANES
from ggml_py.types import BY_NAME, GGMLType

Panel = tuple[Function, Function]
BYTES = 8 * WORD  # minimum size of a panel block with 8-bit values


class Products(NamedTuple):
    """Functions that multiply blocks of a type. All functions are `@fn`.

    add_words     add_words(width) -> add(words, columns, dots): add dot products of a panel block
    load_pairs    load_pairs(words, i): bytes of values 4 * i .. and bytes of values 16 + 4 * i ..
    less          offset of the bytes: byte - less is the value
    start         (at, times): panel dot products start at `times` * i32 at offset `at` of a column
    load_scales   load_scales(scales): f32 scales of a panel block, see panels.py
    load_minima   load_minima(scales): its minima, or None
    block_dots    block_dots(block, column): i32x8 dot products of a block in place
    load_scale    load_scale(block): its scale
    load_minimum  load_minimum(block): its minimum, or None
    """

    add_words: Callable[[int], Function]
    load_pairs: Function
    less: int
    start: tuple[int, int]
    load_scales: Function
    block_dots: Function
    load_scale: Function
    load_minima: Function | None = None
    load_minimum: Function | None = None


def _tile(products: Products, kind: GGMLType, column_bytes: int) -> Callable[[int], Function]:
    add_words, (start, times), load_scales = (
        products.add_words,
        products.start,
        products.load_scales,
    )
    load_minima, panel_bytes = products.load_minima, kind.type_size * LANES
    block_addresses, next_group = places(get_blocks(kind))

    def tile(width: int) -> Function:
        add, fetch = add_words(width), fetcher(width, panel_bytes, 1)
        # For one column of 8-bit weights the loads alone keep memory busy.
        in_time = width == 1 and panel_bytes >= BYTES and not SIDE_BY_SIDE
        fetches = not in_time and not computes_longer(width)

        @fn
        def add_scaled(scales, a, dots, sums):
            scale = load_scales(scales)
            for t in range(width):
                both = scale * v.f32_bcast(a + SCALE_32 * width + 4 * t)
                sums[t] = v.fma(v.to_f32(dots[t]), both, sums[t])

        @fn
        def add_scaled_with_minima(scales, a, dots, sums):
            scale, minimum = load_scales(scales), load_minima(scales)
            for t in range(width):
                total = v.f32_bcast(a + SUM_32 * width + 4 * t)
                both = scale * v.f32_bcast(a + SCALE_32 * width + 4 * t)
                sums[t] = v.fma(v.to_f32(dots[t]), both, v.fma(minimum, total, sums[t]))

        finish = add_scaled if load_minima is None else add_scaled_with_minima

        @panel_function(width)
        def multiply(w, a, steps, out):
            sums = v.f32_regs(width)
            for i in range(steps):
                scales, words = block_addresses(w, i)
                if fetches:
                    fetch(words, 0, 0)
                dots = v.i32_regs(width)
                if times:
                    for t in range(width):
                        dots[t] = v.i32_bcast(a + start * width + 4 * t) * times
                add(words, a, dots)
                finish(scales, a, dots, sums)
                w = next_group(w, i)
                a += column_bytes * width
            for t in range(width):
                v.store(out + WORD * t, sums[t])

        return multiply

    return tile


def _bind_put_block(products: Products) -> Callable[[Function, int], Function]:
    load_pairs, less = products.load_pairs, float(-products.less)
    load_scales, load_minima = products.load_scales, products.load_minima

    @fn
    def from_less(scales, scale):
        return scale * less

    @fn
    def from_minima(scales, scale):
        return load_minima(scales)

    offset_of = from_less if load_minima is None else from_minima

    def build_put_block(put: Function, size: int) -> Function:
        @fn
        def put_block(scales, words, to):
            scale = load_scales(scales)
            offset = offset_of(scales, scale)
            for i in range(4):
                low, high = load_pairs(words, i)
                put(low, scale, offset, to + size * i)
                put(high, scale, offset, to + size * (i + 4))

        return put_block

    return build_put_block


def _dot(products: Products, size: int, column_bytes: int) -> Function:
    """Return `Weight.dot` for a row in place: two blocks at a time, with separate accumulators."""
    block_dots, load_scale = products.block_dots, products.load_scale
    load_minimum = products.load_minimum

    @fn
    def add(w, a, total):
        return v.fma(load_scale(w) * v.ld_f32(a + SCALE_32), v.to_f32(block_dots(w, a)), total)

    @fn
    def no_minimum(w, a):
        return v.float32(0)

    @fn
    def from_minimum(w, a):
        return load_minimum(w) * v.ld_f32(a + SUM_32)

    has_minimum = load_minimum is not None
    more_of = from_minimum if has_minimum else no_minimum

    @fn
    def dot(src, stride, rows, a, n, out):
        even = v.f32x8(0.0)
        odd = v.f32x8(0.0)
        more = v.float32(0)
        for _ in range(n // 64):
            fetch_ahead(src, 2 * size)
            even = add(src, a, even)
            odd = add(src + size, a + column_bytes, odd)
            if has_minimum:
                more += more_of(src, a) + more_of(src + size, a + column_bytes)
            src += 2 * size
            a += 2 * column_bytes
        if n % 64:
            even = add(src, a, even)
            if has_minimum:
                more += more_of(src, a)
        total = v.vsum(even + odd)
        if has_minimum:
            total += more
        v.st_f32(out, total)

    return dot


def weight(
    name: str,
    activations: Activations,
    panel: Panel,
    products: Products,
    decode: Function,
    encode: Function | None,
) -> Weight:
    """Return a weight type of this family; panel, decode, encode: see walk.py."""
    kind = BY_NAME[name]
    tile = _tile(products, kind, activations.block_bytes)
    dot = _dot(products, kind.type_size, activations.block_bytes)
    build_put_block = _bind_put_block(products)
    return walk.weight(kind, activations, panel, tile, dot, decode, encode, build_put_block)


def nibbles(
    load_pairs: Function, largest: int, dot4: Function = unsigned_dot
) -> Callable[[int], Function]:
    """Return `Products.add_words`; load_pairs(panel, i) returns low and high values of word i."""

    def add_words(width: int) -> Function:
        size, run, begin, _, two, put_dots, *_ = choose_dots(width, 8, largest, dot4)
        at_once = run // 2

        @fn
        def add_run(w, a, first, sums):
            dots = v.i32_regs(size)
            begin(dots, sums)
            for i in range(first, first + at_once):
                low, high = load_pairs(w, i)
                two(dots, i, low, high, a, i)
            put_dots(sums, dots)

        @fn
        def add(w, a, sums):
            add_run(w, a, 0, sums)
            if run < 8:
                add_run(w, a, at_once, sums)
            if run < 4:
                add_run(w, a, 2 * at_once, sums)
                add_run(w, a, 3 * at_once, sums)

        return add

    return add_words


def four_bits(panel_at: int, block_at: int) -> tuple[Function, Function]:
    """Return load_pairs(panel, i), see `nibbles`, and load_values(block), i8x32, for 4-bit values.

    The nibbles have offset `panel_at` in a panel block and `block_at` in a block.
    """

    @fn
    def load_pairs(w, i):
        packed = v.i8_load(w + panel_at + i * WORD)
        return packed & 15, (packed >> 4) & 15

    @fn
    def load_values(block):
        packed = v.i8x16_load(block + block_at)
        return v.concat(packed & 15, (packed >> 4) & 15)

    return load_pairs, load_values


@fn
def first_f16(block):
    return v.ld_f16(block)


@fn
def first_f16s(panel):
    return v.f16_load(panel)


def with_offset(
    name: str,
    offset: int,
    activations: Activations,
    panel: Panel,
    load_pairs: Function,
    load_values: Function,
    decode: Function,
    encode: Function,
) -> Weight:
    """Return a type with x = d * (q - offset), d the f16 at the start of the block.

    load_pairs(panel, i), load_values(block): q, see `four_bits`.
    """
    times = offset // 8

    @fn
    def in_place(w, a):
        start = v.set_lane(v.i32x8(0), 0, v.ld_i32(a + SUM8_32) * times)
        return v.dot4(start, load_values(w), v.i8x32_load(a))

    words, start = nibbles(load_pairs, 2 * offset - 1), (SUM8_32, times)
    products = Products(words, load_pairs, offset, start, first_f16s, in_place, first_f16)
    return weight(name, activations, panel, products, decode, encode)


def with_minimum(
    name: str,
    largest: int,
    activations: Activations,
    panel: Panel,
    load_pairs: Function,
    load_values: Function,
    encode: Function,
) -> Weight:
    """Return a type with x = d * q + m, q at most `largest`; blocks start with d f16 | m f16.

    A dot product is d * dot(q, y) + m * sum(y). Panels keep the block's words in order.
    """

    @fn
    def load_scales(w):
        return v.f16_to_f32(v.to_i16(v.i32_load(w)))

    @fn
    def load_minima(w):
        return v.f16_to_f32(v.to_i16(v.i32_load(w) >> 16))

    @fn
    def in_place(w, a):
        return v.dot4(v.i32x8(0), load_values(w), v.i8x32_load(a))

    @fn
    def load_minimum(block):
        return v.ld_f16(block + 2)

    @fn
    def decode(block, x):
        values = v.to_f32(v.zext_i32(load_values(block)))
        v.store(x, values * v.ld_f16(block) + v.ld_f16(block + 2))

    words = nibbles(load_pairs, largest)
    products = Products(
        words, load_pairs, 0, (0, 0), load_scales, in_place, first_f16, load_minima, load_minimum
    )
    return weight(name, activations, panel, products, decode, encode)
