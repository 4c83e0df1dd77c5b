"""CPY, CONT, DUP of block types: unchanged, dequantized to f32, and quantized from floats."""

from __future__ import annotations

from collections.abc import Callable

from ggml_cpu import vocabulary as v
from ggml_cpu.blocks.format import Format
from ggml_cpu.kernel import fn, kernel
from ggml_cpu.kernels._common import (
    FLOAT_NAMES,
    float_kind,
    ld_float,
    n_rows,
    require_all,
    row_address,
    types_are,
)
from ggml_cpu.kernels._moves import copy_bytes
from ggml_cpu.kernels.copy.elements import element_address
from ggml_cpu.quants import formats
from ggml_py.tensor import Tensor


@fn
def block_address(p, k, i, size):
    """Return the address of tensor k's block that starts at element i; `size`: block size."""
    n0 = v.ne(p, k, 0)
    return row_address(p, k, i // n0) + i % n0 // size * v.nb(p, k, 0)


@fn
def run_length(p, dense_rows_of, size):
    """Return the number of elements to convert per call.

    This is the shorter row length if the float side is dense and row boundaries align on both
    sides, else one block of `size` elements.
    """
    d0, s0 = v.ne(p, 0, 0), v.ne(p, 1, 0)
    inner = min(d0, s0)
    whole = inner % size == 0 and d0 % inner == 0 and s0 % inner == 0
    return inner if dense_rows_of and whole else size


def _block_scratch(size: int) -> Callable[[Tensor, int], tuple[int, int]]:
    def scratch(node: Tensor, nth: int) -> tuple[int, int]:
        return 0, 4 * size

    return scratch


def blocks_follow(node: Tensor) -> str:
    """Require contiguous rows in tensors of block types."""
    for t in (node, node.source(0)):
        if t.type.is_quantized and not t.has_contiguous_rows():
            return f"needs dense rows of blocks; {t} has blocks {t.nb[0]} bytes apart"
    return ""


def source_kind(node: Tensor) -> tuple[int, ...]:
    return (float_kind(node.source(0)),)


def _to_blocks(format: Format) -> None:
    quantize, size, name = format.quantize, format.type.block_size, format.type.name

    @kernel(
        "CPY",
        when=require_all(types_are(name, FLOAT_NAMES), blocks_follow),
        scratch=_block_scratch(size),
        extra=source_kind,
        name=f"cpy_floats_{name}",
    )
    def cpy(p, ith, nth):
        kind = v.extra(p, 0)
        dense = kind == 0 and v.nb(p, 1, 0) == 4
        run, spare = run_length(p, dense, size), v.local(p, ith)
        start, stop = v.split(v.ne(p, 0, 0) * n_rows(p, 0) // run, ith, nth)
        for u in range(start, stop):
            x = element_address(p, 1, u * run)
            if not (dense and v.ne(p, 1, 0) % run == 0):
                for i in range(run):
                    v.st_f32(spare + 4 * i, ld_float(element_address(p, 1, u * run + i), kind))
                x = spare
            quantize(x, run, block_address(p, 0, u * run, size))


def _from_blocks(format: Format) -> None:
    dequantize, size, name = format.dequantize, format.type.block_size, format.type.name

    @kernel(
        "CPY",
        when=require_all(types_are("f32", name), blocks_follow),
        scratch=_block_scratch(size),
        name=f"cpy_{name}_f32",
    )
    def cpy(p, ith, nth):
        dense = v.nb(p, 0, 0) == 4
        run, spare = run_length(p, dense, size), v.local(p, ith)
        start, stop = v.split(v.ne(p, 0, 0) * n_rows(p, 0) // run, ith, nth)
        for u in range(start, stop):
            x = block_address(p, 1, u * run, size)
            if dense and v.ne(p, 0, 0) % run == 0:
                dequantize(x, run, element_address(p, 0, u * run))
            else:
                dequantize(x, run, spare)
                for i in range(run):
                    v.st_f32(element_address(p, 0, u * run + i), v.ld_f32(spare + 4 * i))


def same_blocks(node: Tensor) -> str:
    a = node.source(0)
    if not node.type.is_quantized or node.type is not a.type:
        return "needs one block type on both sides"
    if node.ne[0] != a.ne[0]:
        return f"needs rows of equal length; got {a} -> {node}"
    return blocks_follow(node)


def row_bytes(node: Tensor) -> tuple[int, ...]:
    return (node.type.row_size(node.ne[0]),)


@kernel("CPY", "CONT", "DUP", when=same_blocks, extra=row_bytes)
def copy_blocks(p, ith, nth):
    """Copy rows of blocks unchanged."""
    start, stop = v.split(n_rows(p, 0), ith, nth)
    for r in range(start, stop):
        copy_bytes(row_address(p, 0, r), row_address(p, 1, r), v.extra(p, 0))


for _format in formats().values():
    _from_blocks(_format)
    if _format.quantize is not None:
        _to_blocks(_format)
