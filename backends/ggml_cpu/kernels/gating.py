"""FUSED_MUL_UNARY: a unary function of one tensor times another."""

from __future__ import annotations

from ggml_cpu import vocabulary as v
from ggml_cpu.kernel import fn, kernel
from ggml_cpu.kernels.common import both, dense_rows, n_rows, row_at, types_are
from ggml_cpu.kernels.elementwise import gelu, relu, sigmoid, silu
from ggml_py.ops.gating import KINDS
from ggml_py.tensor import Tensor


def _gate(name, apply):
    def this_kind(node: Tensor) -> str:
        return "" if node.param("kind") == KINDS[name] else f"is the kernel of {name}"

    @fn
    def gated(gate, y, limit):
        gate = apply(gate)
        if limit > 0.0:
            gate, y = v.vmin(gate, limit), v.vmax(v.vmin(y, limit), -limit)
        return gate * y

    @kernel(
        "FUSED_MUL_UNARY",
        when=both(types_are("f32", "f32", "f32"), dense_rows, this_kind),
        name=f"fused_mul_{name}_f32",
    )
    def fused_mul_unary(p, ith, nth):
        n, limit = v.ne(p, 0, 0), v.op_f32(p, 1)
        start, stop = v.split(n_rows(p, 0), ith, nth)
        for r in range(start, stop):
            d, a, b = row_at(p, 0, r), row_at(p, 1, r), row_at(p, 2, r)
            one = v.f32_bcast(a)
            for i in range(0, n, v.LANES):
                gate = one if v.ne(p, 1, 0) == 1 else v.f32_load_n(a + 4 * i, n - i)
                v.store_n(d + 4 * i, gated(gate, v.f32_load_n(b + 4 * i, n - i), limit), n - i)


for _name, _apply in (("relu", relu), ("sigmoid", sigmoid), ("gelu", gelu), ("silu", silu)):
    _gate(_name, _apply)
