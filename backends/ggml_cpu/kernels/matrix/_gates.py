"""Matmul fused with a GLU: the product is the gate, and the unit is applied to a tile's results.

The gates are in a thread's local scratch, which saves a large tensor. Op param UNIT is the number
of the unit in kernels/glu.py:OF_PRODUCTS; 0: the product is the result.
"""

from __future__ import annotations

from ggml_cpu import vocabulary as v
from ggml_cpu.blocks.format import Weight
from ggml_cpu.kernel import Function, fn
from ggml_cpu.kernels._products import SUM_BYTES, column_address, get_shape
from ggml_cpu.kernels.glu import gate_rows
from ggml_cpu.target import TILE

UNIT = 15  # index of an op param (i32); matmul ops use lower indices


def build_gate_params(value: int) -> Function:
    """Return gate_params(p): (unit, byte offset from dst to the values); value: their tensor."""

    @fn
    def gate_params(p):
        return v.op_i32(p, UNIT), v.data(p, value) - v.data(p, 0)

    return gate_params


def local_bytes(weight: Weight, k: int) -> int:
    """Return the bytes of local scratch of a gated product: sums, and the gates of a tile."""
    return SUM_BYTES + 4 * weight.rows * TILE * get_shape(weight).panels_per_group(k)


def gated_product(weight: Weight, product: Function) -> Function:
    """Return `product` of panels with a GLU; `build_gate_params` gives two more arguments.

    product: see _products.py:tiles_product.
    """
    rows, column_bytes = weight.rows, weight.activations.column_bytes

    @fn
    def multiply_and_gate(
        w, w_stride, k, m, first, last, a, n, out, stride, order, local, unit, values_at
    ):
        gates, apart, n_rows = local + SUM_BYTES, 4 * rows * (last - first), min(m, last * rows)
        at_once, to, step, names = n, out, stride, order
        if unit != 0:
            at_once, to, step, names = TILE, gates - 4 * rows * first, apart, 0
        c = 0
        while c < n:
            x, count = a + c * column_bytes(k), min(at_once, n - c)
            product(w, w_stride, k, m, first, last, x, count, to, step, names, local)
            if unit != 0:
                for t in range(count):
                    y = column_address(out, c + t, stride, order) + 4 * rows * first
                    gate_rows(unit, y, gates + t * apart, y + values_at, n_rows - rows * first)
            c += count

    return multiply_and_gate
