"""Readers of keys and values for the attention kernels, by type.

f32, f16 and bf16 have specialized kernels that read them in place. All other pairs of types share
one kernel, which converts rows to f32 and chooses the conversion at run time. For few query rows,
pairs with block formats also have specialized kernels (IN_BLOCKS).
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
MOST = 64  # maximum elements per block of a type for the KV cache


class Rows(NamedTuple):
    """Functions that read rows of keys or values in place.

    Attributes:
        step: Elements per block; for floats, elements in 64 bytes, or LANES if that is more.
        bytes: bytes(n) returns the bytes of n elements, whole blocks.
        load: load(at, i) returns LANES elements as f32, from element i on of the blocks at `at`.
        load_n: load_n(at, i, n) is `load` for a row's last n elements, followed by zeros. Block
            formats ignore n, because their rows are whole blocks.
    """

    step: int
    bytes: Function
    load: Function
    load_n: Function


def build_rows(element: Element) -> Rows:
    """Return the functions that read rows of a float type."""
    ld, ld_n, size = element.load, element.load_n, element.size

    @fn
    def element_bytes(n):
        return n * size

    @fn
    def load(at, i):
        return ld(at + size * i)

    @fn
    def load_n(at, i, n):
        return ld_n(at + size * i, n)

    return Rows(max(LANES, 64 // size), element_bytes, load, load_n)


def _blocks(format: Format) -> Rows:
    vector, size, elements = format.vector, format.type.type_size, format.type.block_size

    @fn
    def element_bytes(n):
        return n // elements * size

    @fn
    def load(at, i):
        return vector(at + i // elements * size, i % elements)

    @fn
    def load_n(at, i, n):
        return load(at, i)

    return Rows(elements, element_bytes, load, load_n)


# Types read in place: block formats, and f16, which may be paired with a block format.
BLOCKS: dict[str, Rows] = {n: _blocks(f) for n, f in types().items() if f.vector is not None}
IN_PLACE: dict[str, Rows] = {F16.name: build_rows(F16)} | BLOCKS


def accept_types(keys: str, values: str) -> Accepts:
    """Return a predicate that accepts exactly these types of keys and values."""
    return lambda k, values_type: (k, values_type) == (keys, values)


# Pairs of types read in place that include a block format: the kernel's name, the predicate of
# accepted types, readers of keys and values.
IN_BLOCKS: list[tuple[str, Accepts, Rows, Rows]] = [
    (k if k == values else f"{k}_{values}", accept_types(k, values), IN_PLACE[k], IN_PLACE[values])
    for k in IN_PLACE
    for values in IN_PLACE
    if {k, values} & BLOCKS.keys()
]


class Source(NamedTuple):
    """Functions that read keys and values; `kind` selects the type if there are several.

    Attributes:
        name: Name of the type, or "mixed".
        accepts: accepts(type name of keys, type name of values) returns True if it reads them.
        element: Element type of the rows that `place` returns.
        place: place(kind, src, stride, rows, n, spare) returns the address of rows of n elements,
            in place or converted into `spare`.
        step: step(stride, n) returns the bytes between these rows.
        panel: panel(kind, src, stride, rows, n, dst, spare) interleaves up to LANES rows into f32
            [n][LANES]; the last row fills missing rows.
        row: row(kind, src, n, dst, step, spare) writes a row as f32 vectors, `step` bytes apart.
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
    def row_step(stride, n):
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

    return Source(element.name, accepts, element, place, row_step, panel, row)


def _choice(kind: int, convert: Function, otherwise: Function) -> Function:
    @fn
    def choose(asked, src, n, dst):
        if asked == kind:
            convert(src, n, dst)
        else:
            otherwise(asked, src, n, dst)

    return choose


@fn
def skip_conversion(asked, src, n, dst):
    pass


CONVERSIONS: dict[str, Function] = {e.name: to_f32(e) for e in FLOATS}
CONVERSIONS |= {
    name: f.dequantize
    for name, f in types().items()
    if f.dequantize is not None and f.quantize is not None and f.type.block_size <= MOST
}
KINDS = list(CONVERSIONS)


def kv_kinds(node: Tensor) -> tuple[int, int, int, int]:
    """Return the kinds of keys and values (indices in KINDS) and the bytes of their rows."""
    k, values = node.source(1), node.source(2)
    kinds = KINDS.index(k.type.name), KINDS.index(values.type.name)
    return (*kinds, k.type.row_size(k.ne[0]), values.type.row_size(values.ne[0]))


def _mixed_source() -> Source:
    convert: Function = skip_conversion
    for i, one in enumerate(CONVERSIONS.values()):
        convert = _choice(i, one, convert)

    @fn
    def place(kind, src, stride, rows, n, spare):
        for r in range(rows):
            convert(kind, src + r * stride, n, spare + 4 * n * r)
        return spare

    @fn
    def row_step(stride, n):
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

    return Source("mixed", accepts, F32, place, row_step, panel, row)


SOURCES = (*(_float(e) for e in FLOATS), _mixed_source())
