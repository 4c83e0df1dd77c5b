"""Types of keys and values: how the kernels for attention read them.

f32, f16 and bf16 are read where they are, by kernels of their own. Every other pair of types shares
one kernel, which turns rows into f32 first and chooses at run time how.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from ggml_cpu import vocabulary as v
from ggml_cpu.blocks.format import Format
from ggml_cpu.blocks.interleave import interleave_words, interleaver
from ggml_cpu.kernel import Function, fn
from ggml_cpu.kernels._common import F16, F32, FLOATS, Element
from ggml_cpu.kernels._map import to_f32
from ggml_cpu.quants import types
from ggml_cpu.target import LANES
from ggml_py.tensor import Tensor

Accepts = Callable[[str, str], bool]

WORD = 4 * LANES  # bytes of a vector
MOST = 64  # longest block of a type that makes sense for a cache


class Rows(NamedTuple):
    """Rows of keys, or of values, that are read where they are.

    step    elements of a block; of floats those of 64 bytes, or a vector
    bytes   bytes(n): of n elements, whole blocks
    load    load(at, i): vector of LANES elements from element i on of what begins at `at`, a block
    load_n  load_n(at, i, n): only the first n; the others are 0
    """

    step: int
    bytes: Function
    load: Function
    load_n: Function


def rows_of(element: Element) -> Rows:
    """The rows of a float type."""
    ld, ld_n, size = element.load, element.load_n, element.size

    @fn
    def bytes_of(n):
        return n * size

    @fn
    def load(at, i):
        return ld(at + size * i)

    @fn
    def load_n(at, i, n):
        return ld_n(at + size * i, n)

    return Rows(max(LANES, 64 // size), bytes_of, load, load_n)


def _blocks(format: Format) -> Rows:
    vector, size, elements = format.vector, format.type.type_size, format.type.block_size

    @fn
    def bytes_of(n):
        return n // elements * size

    @fn
    def load(at, i):
        return vector(at + i // elements * size, i % elements)

    @fn
    def load_n(at, i, n):
        return load(at, i)

    return Rows(elements, bytes_of, load, load_n)


# Types that can be read where they are: in blocks, and those beside which these may be.
BLOCKS: dict[str, Rows] = {n: _blocks(f) for n, f in types().items() if f.vector is not None}
IN_PLACE: dict[str, Rows] = {F16.name: rows_of(F16)} | BLOCKS


def only(keys: str, values: str) -> Accepts:
    """Keys and values of these types, and no others."""
    return lambda k, values_type: (k, values_type) == (keys, values)


# Of keys and values that are read where they are, those with blocks among them: the kernel's name,
# what it accepts, how keys and values are read.
IN_BLOCKS: list[tuple[str, Accepts, Rows, Rows]] = [
    (k if k == values else f"{k}_{values}", only(k, values), IN_PLACE[k], IN_PLACE[values])
    for k in IN_PLACE
    for values in IN_PLACE
    if {k, values} & BLOCKS.keys()
]


class Source(NamedTuple):
    """How keys and values of some types are read; `kind` says which, where there are several.

    accepts  accepts(name of the keys' type, of the values' type)
    element  how the rows that `place` gives are read
    place    place(kind, src, stride, rows, n, spare): address of rows of n elements; they may have
             been moved to spare
    step     step(stride, n): bytes between rows there
    panel    panel(kind, src, stride, rows, n, dst, spare): up to LANES rows side by side, f32
             [n][LANES]; rows past the last repeat it
    row      row(kind, src, n, dst, step, spare): a row as f32 vectors, `step` bytes apart
    """

    name: str
    accepts: Accepts
    element: Element
    place: Function
    step: Function
    panel: Function
    row: Function


def _float(element: Element) -> Source:
    load, load_n, size = element.load, element.load_n, element.size

    @fn
    def words(address):
        return v.as_i32(load(address))

    @fn
    def words_n(address, n):
        return v.as_i32(load_n(address, n))

    interleave = interleaver(words, words_n, size)

    @fn
    def place(kind, src, stride, rows, n, spare):
        return src

    @fn
    def step_of(stride, n):
        return stride

    @fn
    def panel(kind, src, stride, rows, n, dst, spare):
        interleave(src, stride, rows, n, dst, WORD)

    @fn
    def row(kind, src, n, dst, step, spare):
        for i in range(0, n, LANES):
            v.store(dst + i // LANES * step, load_n(src + i * size, n - i))

    def accepts(keys: str, values: str) -> bool:
        return keys == values == element.name

    return Source(element.name, accepts, element, place, step_of, panel, row)


def _choice(kind: int, convert: Function, otherwise: Function) -> Function:
    @fn
    def choose(asked, src, n, dst):
        if asked == kind:
            convert(src, n, dst)
        else:
            otherwise(asked, src, n, dst)

    return choose


@fn
def nothing(asked, src, n, dst):
    pass


CONVERSIONS: dict[str, Function] = {e.name: to_f32(e) for e in FLOATS}
CONVERSIONS |= {
    name: f.dequantize
    for name, f in types().items()
    if f.dequantize is not None and f.quantize is not None and f.type.block_size <= MOST
}
KINDS = list(CONVERSIONS)


def kinds_of(node: Tensor) -> tuple[int, int, int, int]:
    """Kinds of keys and values, bytes of their rows."""
    k, values = node.source(1), node.source(2)
    kinds = KINDS.index(k.type.name), KINDS.index(values.type.name)
    return (*kinds, k.type.row_size(k.ne[0]), values.type.row_size(values.ne[0]))


def _mixed() -> Source:
    convert: Function = nothing
    for i, one in enumerate(CONVERSIONS.values()):
        convert = _choice(i, one, convert)

    @fn
    def place(kind, src, stride, rows, n, spare):
        for r in range(rows):
            convert(kind, src + r * stride, n, spare + 4 * n * r)
        return spare

    @fn
    def step_of(stride, n):
        return 4 * n

    @fn
    def panel(kind, src, stride, rows, n, dst, spare):
        interleave_words(place(kind, src, stride, rows, n, spare), 4 * n, rows, n, dst, WORD)

    @fn
    def row(kind, src, n, dst, step, spare):
        convert(kind, src, n, spare)
        for i in range(0, n, LANES):
            v.store(dst + i // LANES * step, v.f32_load_n(spare + 4 * i, n - i))

    def accepts(keys: str, values: str) -> bool:
        read_in_place = any(keys == values == e.name for e in FLOATS)
        return keys in CONVERSIONS and values in CONVERSIONS and not read_in_place

    return Source("mixed", accepts, F32, place, step_of, panel, row)


SOURCES = (*(_float(e) for e in FLOATS), _mixed())
