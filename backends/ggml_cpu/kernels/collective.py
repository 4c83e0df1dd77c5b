"""REDUCE: sum tensors and write the sum to each (all-reduce)."""

from __future__ import annotations

from collections.abc import Callable

from ggml_cpu import vocabulary as v
from ggml_cpu.blocks.format import Format
from ggml_cpu.kernel import fn, kernel
from ggml_cpu.kernels._common import FLOATS, Element, n_rows
from ggml_cpu.kernels._map import map_vectors
from ggml_cpu.kernels._moves import copy_bytes
from ggml_cpu.quants import formats
from ggml_py.ops.collective import TYPES
from ggml_py.tensor import Tensor


@fn
def is_added(p, k):
    """Return True if part k exists and is an input of the sum, not only a receiver."""
    return v.data(p, k) != 0 and (v.op_i32(p, 4) >> (k - 1)) & 1 == 0


def _require_type(name: str) -> Callable[[Tensor], str]:
    def check(node: Tensor) -> str:
        return "" if node.type.name == name else f"needs {name} parts"

    return check


@fn
def end_of_parts(p):
    return (v.op_i32(p, 1) + 1,)


def _reduce(element: Element) -> None:
    load_n, store_n, size = element.load_n, element.store_n, element.size

    @fn
    def step(p, i, n, end):
        total = v.f32(0.0)
        for k in range(1, end):
            if is_added(p, k):
                total = total + load_n(v.data(p, k) + i * size, n)
        for k in range(1, end):
            if v.data(p, k) != 0:
                store_n(v.data(p, k) + i * size, total, n)

    vectors = map_vectors(step, end_of_parts)

    @kernel("REDUCE", when=_require_type(element.name), name=f"reduce_{element.name}")
    def reduce(p, ith, nth):
        vectors(p, ith, nth)


for _e in FLOATS:
    _reduce(_e)


def _reduce_blocks(format: Format) -> None:
    dequantize, quantize = format.dequantize, format.quantize
    elements, size, name = format.type.block_size, format.type.type_size, format.type.name
    sum_bytes = 4 * elements  # bytes of the sum in local scratch; a dequantized part follows

    @kernel(
        "REDUCE",
        when=_require_type(name),
        scratch=lambda node, nth: (0, 2 * sum_bytes),
        name=f"reduce_{name}",
    )
    def reduce(p, ith, nth):
        """Sum block by block, with the sum and one dequantized part in local scratch."""
        n_parts, total, part = v.op_i32(p, 1), v.local(p, ith), v.local(p, ith) + sum_bytes
        start, stop = v.split(v.ne(p, 0, 0) // elements * n_rows(p, 0), ith, nth)
        for i in range(start, stop):
            for c in range(0, elements, v.LANES):
                v.store_n(total + 4 * c, v.f32(0.0), elements - c)
            for k in range(1, n_parts + 1):
                if is_added(p, k):
                    dequantize(v.data(p, k) + i * size, elements, part)
                    for c in range(0, elements, v.LANES):
                        rest = elements - c
                        y = v.f32_load_n(total + 4 * c, rest) + v.f32_load_n(part + 4 * c, rest)
                        v.store_n(total + 4 * c, y, rest)
            quantize(total, elements, part)
            for k in range(1, n_parts + 1):
                if v.data(p, k) != 0:
                    copy_bytes(v.data(p, k) + i * size, part, size)


for _type in TYPES:
    if _type.is_quantized:
        _reduce_blocks(formats()[_type.name])
