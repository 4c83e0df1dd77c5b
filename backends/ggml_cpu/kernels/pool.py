"""POOL_1D and POOL_2D: maximum and average pooling."""

from __future__ import annotations

from ggml_cpu import vocabulary as v
from ggml_cpu.kernel import kernel
from ggml_cpu.kernels._common import F16, F32, Element, n_rows, row_address, types_are

LOWEST = -3.4028234663852886e38  # maximum of an empty window


def _pool(element: Element) -> None:
    ld = element.ld

    @kernel("POOL_1D", when=types_are("f32", element.name), name=f"pool_1d_{element.name}")
    def pool_1d(p, ith, nth):
        largest, k, s, p0 = v.op_i32(p, 0) == 0, v.op_i32(p, 1), v.op_i32(p, 2), v.op_i32(p, 3)
        start, stop = v.split(n_rows(p, 0), ith, nth)
        for r in range(start, stop):
            x, d = row_address(p, 1, r), row_address(p, 0, r)
            for i in range(v.ne(p, 0, 0)):
                first, last = max(0, i * s - p0), min(v.ne(p, 1, 0), i * s - p0 + k)
                y = v.float32(LOWEST) if largest else v.float32(0.0)
                for j in range(first, last):
                    z = ld(x + j * v.nb(p, 1, 0))
                    y = max(y, z) if largest else y + z
                if not largest and last > first:
                    y = y / v.float32(last - first)
                v.st_f32(d + 4 * i, y)

    @kernel("POOL_2D", when=types_are("f32", element.name), name=f"pool_2d_{element.name}")
    def pool_2d(p, ith, nth):
        largest, k0, k1 = v.op_i32(p, 0) == 0, v.op_i32(p, 1), v.op_i32(p, 2)
        s0, s1, p0, p1 = v.op_i32(p, 3), v.op_i32(p, 4), v.op_i32(p, 5), v.op_i32(p, 6)
        n1 = v.ne(p, 0, 1)
        start, stop = v.split(n_rows(p, 0), ith, nth)
        for r in range(start, stop):
            d, plane = row_address(p, 0, r), row_address(p, 1, r // n1 * v.ne(p, 1, 1))
            top = r % n1 * s1 - p1
            for i in range(v.ne(p, 0, 0)):
                first, last = max(0, i * s0 - p0), min(v.ne(p, 1, 0), i * s0 - p0 + k0)
                y = v.float32(LOWEST) if largest else v.float32(0.0)
                for j1 in range(max(0, top), min(v.ne(p, 1, 1), top + k1)):
                    for j0 in range(first, last):
                        z = ld(plane + j1 * v.nb(p, 1, 1) + j0 * v.nb(p, 1, 0))
                        y = max(y, z) if largest else y + z
                v.st_f32(d + 4 * i, y if largest else y / v.float32(k0 * k1))


for _element in (F32, F16):
    _pool(_element)
