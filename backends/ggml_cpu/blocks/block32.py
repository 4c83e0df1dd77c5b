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
from ggml_cpu.blocks.dots import dots_of, unsigned_dot
from ggml_cpu.blocks.format import Weight
from ggml_cpu.blocks.panels import WORD, blocks_of, places
from ggml_cpu.blocks.tiles import several
from ggml_cpu.kernel import Function, fn
from ggml_cpu.target import LANES
from ggml_py.types import BY_NAME, GGMLType

Panel = tuple[Function, Function]
BYTES = 8 * WORD  # minimum size of a panel block with 8-bit values


class Products(NamedTuple):
    """Functions that multiply blocks of a type. All functions are `@fn`.

    add_words   add_words(width) -> add(words, columns, dots): add the dot products of a panel block
    pairs_of    pairs_of(words, i): bytes of values 4 * i .. and bytes of values 16 + 4 * i ..
    less        offset of these bytes: byte - less is the value
    start       (at, times): panel dot products start at `times` * i32 at offset `at` of a column
    scales_of   scales_of(scales): f32 scales of a panel block, see panels.py
    minima_of   minima_of(scales): its minima, or None
    dots_of     dots_of(block, column): i32x8 dot products of a block in place
    scale_of    scale_of(block): its scale
    minimum_of  minimum_of(block): its minimum, or None
    """

    add_words: Callable[[int], Function]
    pairs_of: Function
    less: int
    start: tuple[int, int]
    scales_of: Function
    dots_of: Function
    scale_of: Function
    minima_of: Function | None = None
    minimum_of: Function | None = None


def _tile(products: Products, kind: GGMLType, column_bytes: int) -> Callable[[int], Function]:
    add_words, (start, times), scales_of = products.add_words, products.start, products.scales_of
    minima_of, panel_bytes = products.minima_of, kind.type_size * LANES
    at, after = places(blocks_of(kind))

    def tile(width: int) -> Function:
        add, fetch = add_words(width), fetcher(width, panel_bytes, 1)
        # For one column of 8-bit weights the loads alone keep memory busy.
        in_time = width == 1 and panel_bytes >= BYTES and not SIDE_BY_SIDE
        fetches = not in_time and not computes_longer(width)

        @fn
        def scaled(scales, a, dots, sums):
            scale = scales_of(scales)
            for t in range(width):
                both = scale * v.f32_bcast(a + SCALE_32 * width + 4 * t)
                sums[t] = v.fma(v.to_f32(dots[t]), both, sums[t])

        @fn
        def scaled_with_minima(scales, a, dots, sums):
            scale, minimum = scales_of(scales), minima_of(scales)
            for t in range(width):
                total = v.f32_bcast(a + SUM_32 * width + 4 * t)
                both = scale * v.f32_bcast(a + SCALE_32 * width + 4 * t)
                sums[t] = v.fma(v.to_f32(dots[t]), both, v.fma(minimum, total, sums[t]))

        finish = scaled if minima_of is None else scaled_with_minima

        @several(width)
        def multiply(w, a, steps, out):
            sums = v.f32_regs(width)
            for i in range(steps):
                scales, words = at(w, i)
                if fetches:
                    fetch(words, 0, 0)
                dots = v.i32_regs(width)
                if times:
                    for t in range(width):
                        dots[t] = v.i32_bcast(a + start * width + 4 * t) * times
                add(words, a, dots)
                finish(scales, a, dots, sums)
                w = after(w, i)
                a += column_bytes * width
            for t in range(width):
                v.store(out + WORD * t, sums[t])

        return multiply

    return tile


def _words_of(products: Products) -> Callable[[Function, int], Function]:
    pairs_of, less = products.pairs_of, float(-products.less)
    scales_of, minima_of = products.scales_of, products.minima_of

    @fn
    def from_less(scales, scale):
        return scale * less

    @fn
    def from_minima(scales, scale):
        return minima_of(scales)

    offset_of = from_less if minima_of is None else from_minima

    def words_of(put: Function, size: int) -> Function:
        @fn
        def put_block(scales, words, to):
            scale = scales_of(scales)
            offset = offset_of(scales, scale)
            for i in range(4):
                low, high = pairs_of(words, i)
                put(low, scale, offset, to + size * i)
                put(high, scale, offset, to + size * (i + 4))

        return put_block

    return words_of


def _dot(products: Products, size: int, column_bytes: int) -> Function:
    """Return `Weight.dot` for a row in place: two blocks at a time, with separate accumulators."""
    dots_of, scale_of, minimum_of = products.dots_of, products.scale_of, products.minimum_of

    @fn
    def add(w, a, total):
        return v.fma(scale_of(w) * v.ld_f32(a + SCALE_32), v.to_f32(dots_of(w, a)), total)

    @fn
    def nothing(w, a):
        return v.float32(0)

    @fn
    def from_minimum(w, a):
        return minimum_of(w) * v.ld_f32(a + SUM_32)

    has_minimum = minimum_of is not None
    more_of = from_minimum if has_minimum else nothing

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
    encode: Function,
) -> Weight:
    """Return a weight type of this family; panel, decode, encode: see walk.py."""
    kind = BY_NAME[name]
    tile = _tile(products, kind, activations.block_bytes)
    dot = _dot(products, kind.type_size, activations.block_bytes)
    words_of = _words_of(products)
    return walk.weight(kind, activations, panel, tile, dot, decode, encode, words_of)


def nibbles(
    pairs_of: Function, largest: int, dot4: Function = unsigned_dot
) -> Callable[[int], Function]:
    """Return `Products.add_words`; pairs_of(panel, i) returns low and high values of word i."""

    def add_words(width: int) -> Function:
        size, run, begin, _, two, into, *_ = dots_of(width, 8, largest, dot4)
        at_once = run // 2

        @fn
        def add_run(w, a, first, sums):
            dots = v.i32_regs(size)
            begin(dots, sums)
            for i in range(first, first + at_once):
                low, high = pairs_of(w, i)
                two(dots, i, low, high, a, i)
            into(sums, dots)

        @fn
        def add(w, a, sums):
            add_run(w, a, 0, sums)
            if run < 8:
                add_run(w, a, at_once, sums)

        return add

    return add_words


def four_bits(panel_at: int, block_at: int) -> tuple[Function, Function]:
    """Return pairs_of(panel, i), see `nibbles`, and values_of(block), i8x32, for 4-bit values.

    The nibbles have offset `panel_at` in a panel block and `block_at` in a block.
    """

    @fn
    def pairs_of(w, i):
        packed = v.i8_load(w + panel_at + i * WORD)
        return packed & 15, (packed >> 4) & 15

    @fn
    def values_of(block):
        packed = v.i8x16_load(block + block_at)
        return v.concat(packed & 15, (packed >> 4) & 15)

    return pairs_of, values_of


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
    pairs_of: Function,
    values_of: Function,
    decode: Function,
    encode: Function,
) -> Weight:
    """Return a type with x = d * (q - offset), d the f16 at the start of the block.

    pairs_of(panel, i), values_of(block): q, see `four_bits`.
    """
    times = offset // 8

    @fn
    def in_place(w, a):
        start = v.set_lane(v.i32x8(0), 0, v.ld_i32(a + SUM8_32) * times)
        return v.dot4(start, values_of(w), v.i8x32_load(a))

    words, start = nibbles(pairs_of, 2 * offset - 1), (SUM8_32, times)
    products = Products(words, pairs_of, offset, start, first_f16s, in_place, first_f16)
    return weight(name, activations, panel, products, decode, encode)


def with_minimum(
    name: str,
    largest: int,
    activations: Activations,
    panel: Panel,
    pairs_of: Function,
    values_of: Function,
    encode: Function,
) -> Weight:
    """Return a type with x = d * q + m, q at most `largest`; blocks start with d f16 | m f16.

    A dot product is d * dot(q, y) + m * sum(y). Panels keep the block's words in order.
    """

    @fn
    def scales_of(w):
        return v.f16_to_f32(v.to_i16(v.i32_load(w)))

    @fn
    def minima_of(w):
        return v.f16_to_f32(v.to_i16(v.i32_load(w) >> 16))

    @fn
    def in_place(w, a):
        return v.dot4(v.i32x8(0), values_of(w), v.i8x32_load(a))

    @fn
    def minimum_of(block):
        return v.ld_f16(block + 2)

    @fn
    def decode(block, x):
        values = v.to_f32(v.zext_i32(values_of(block)))
        v.store(x, values * v.ld_f16(block) + v.ld_f16(block + 2))

    words = nibbles(pairs_of, largest)
    products = Products(
        words, pairs_of, 0, (0, 0), scales_of, in_place, first_f16, minima_of, minimum_of
    )
    return weight(name, activations, panel, products, decode, encode)
