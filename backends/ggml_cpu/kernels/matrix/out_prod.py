"""OUT_PROD: sum over k of the outer products of row k of src0 and row k of src1."""

from __future__ import annotations

from ggml_cpu import vocabulary as v
from ggml_cpu.kernel import Function, fn, kernel
from ggml_cpu.kernels._common import FLOATS
from ggml_cpu.kernels._map import to_f32
from ggml_cpu.quants import weights
from ggml_py.tensor import Tensor


def source_row(node: Tensor, nth: int) -> tuple[int, int]:
    """Return scratch bytes (shared, local); local: a row of src0 as f32."""
    return 0, 4 * node.ne[0]


@fn
def axpy(d, w, x, n):
    """d += w * x."""
    for i in range(0, n, v.LANES):
        y = v.fma(v.f32_load_n(x + 4 * i, n - i), v.f32(w), v.f32_load_n(d + 4 * i, n - i))
        v.store_n(d + 4 * i, y, n - i)


def _out_prod(type_name: str, dequantize: Function) -> None:
    def check(node: Tensor) -> str:
        a, b = node.sources(2)
        if (a.type.name, b.type.name) != (type_name, "f32"):
            return f"needs {type_name} and f32; got {a.type} and {b.type}"
        if a.layout or not a.has_contiguous_rows():
            return f"needs dense rows of {type_name}; got {a} with strides {a.nb} {a.layout}"
        return ""

    @kernel("OUT_PROD", when=check, scratch=source_row, name=f"out_prod_{type_name}")
    def out_prod(p, ith, nth):
        """Compute a thread's rows of every matrix; rows of src0 are added one after another."""
        n, m, b2 = v.ne(p, 0, 0), v.ne(p, 0, 1), v.ne(p, 0, 2)
        repeat2, repeat3 = b2 // v.ne(p, 1, 2), v.ne(p, 0, 3) // v.ne(p, 1, 3)
        x, (start, stop) = v.local(p, ith), v.split(m, ith, nth)
        for u in range(b2 * v.ne(p, 0, 3)):
            i2, i3 = u % b2, u // b2
            d = v.data(p, 0) + i2 * v.nb(p, 0, 2) + i3 * v.nb(p, 0, 3)
            a = v.data(p, 1) + i2 // repeat2 * v.nb(p, 1, 2) + i3 // repeat3 * v.nb(p, 1, 3)
            b = v.data(p, 2) + i2 * v.nb(p, 2, 2) + i3 * v.nb(p, 2, 3)
            for r in range(start, stop):
                for i in range(0, n, v.LANES):
                    v.store_n(d + r * v.nb(p, 0, 1) + 4 * i, v.f32(0.0), n - i)
            for k in range(v.ne(p, 1, 1)):
                dequantize(a + k * v.nb(p, 1, 1), n, x)
                for r in range(start, stop):
                    w = v.ld_f32(b + r * v.nb(p, 2, 0) + k * v.nb(p, 2, 1))
                    axpy(d + r * v.nb(p, 0, 1), w, x, n)


for _element in FLOATS:
    _out_prod(_element.name, to_f32(_element))
for _weight in weights().values():
    if _weight.dequantize is not None:
        _out_prod(_weight.type.name, _weight.dequantize)
