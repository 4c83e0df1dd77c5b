"""Convolutions turned round."""

from __future__ import annotations

from ggml_cpu import vocabulary as v
from ggml_cpu.kernel import fn, kernel
from ggml_cpu.kernels.common import F16, F32, FLOATS, Element, both, dense_rows, types_are


@fn
def clear(d, n):
    for i in range(0, n, v.LANES):
        v.store_n(d + 4 * i, v.f32(0.0), n - i)


def _transposed(element: Element) -> None:
    load_n, size = element.load_n, element.size
    when = both(types_are("f32", element.name, "f32"), dense_rows)

    @fn
    def spread(d, stride, x, n, taps, k):
        """d[i * stride + j] += x[i] * taps[j] for n inputs and k taps."""
        for i in range(n):
            w, to = v.f32(v.ld_f32(x + 4 * i)), d + 4 * i * stride
            for j in range(0, k, v.LANES):
                y = v.fma(load_n(taps + j * size, k - j), w, v.f32_load_n(to + 4 * j, k - j))
                v.store_n(to + 4 * j, y, k - j)

    @kernel("CONV_TRANSPOSE_1D", when=when, name=f"conv_transpose_1d_{element.name}")
    def transpose_1d(p, ith, nth):
        """Each output channel by one thread."""
        start, stop = v.split(v.ne(p, 0, 1), ith, nth)
        for c in range(start, stop):
            d = v.data(p, 0) + c * v.nb(p, 0, 1)
            clear(d, v.ne(p, 0, 0))
            for i in range(v.ne(p, 2, 1)):
                taps = v.data(p, 1) + c * v.nb(p, 1, 1) + i * v.nb(p, 1, 2)
                x = v.data(p, 2) + i * v.nb(p, 2, 1)
                spread(d, v.op_i32(p, 0), x, v.ne(p, 2, 0), taps, v.ne(p, 1, 0))

    @kernel("CONV_TRANSPOSE_2D", when=when, name=f"conv_transpose_2d_{element.name}")
    def transpose_2d(p, ith, nth):
        """Each plane of the result by one thread."""
        oc, stride = v.ne(p, 0, 2), v.op_i32(p, 0)
        start, stop = v.split(oc * v.ne(p, 0, 3), ith, nth)
        for u in range(start, stop):
            d = v.data(p, 0) + u % oc * v.nb(p, 0, 2) + u // oc * v.nb(p, 0, 3)
            clear(d, v.ne(p, 0, 0) * v.ne(p, 0, 1))
            for i in range(v.ne(p, 2, 2)):
                kernels = v.data(p, 1) + u % oc * v.nb(p, 1, 2) + i * v.nb(p, 1, 3)
                image = v.data(p, 2) + i * v.nb(p, 2, 2) + u // oc * v.nb(p, 2, 3)
                for y in range(v.ne(p, 2, 1)):
                    x = image + y * v.nb(p, 2, 1)
                    for k in range(v.ne(p, 1, 1)):
                        to, taps = d + (y * stride + k) * v.nb(p, 0, 1), kernels + k * v.nb(p, 1, 1)
                        spread(to, stride, x, v.ne(p, 2, 0), taps, v.ne(p, 1, 0))


for _element in (F32, F16):
    _transposed(_element)


def _col2im(element: Element) -> None:
    ld, st, size = element.ld, element.st, element.size

    @kernel(
        "COL2IM_1D", when=types_are(element.name, element.name), name=f"col2im_1d_{element.name}"
    )
    def col2im(p, ith, nth):
        s, oc, p0 = v.op_i32(p, 0), v.op_i32(p, 1), v.op_i32(p, 2)
        k, columns = v.ne(p, 1, 0) // oc, v.ne(p, 1, 1)
        start, stop = v.split(v.ne(p, 0, 0), ith, nth)
        for c in range(oc):
            x, d = v.data(p, 1) + c * k * size, v.data(p, 0) + c * v.nb(p, 0, 1)
            for i in range(start, stop):
                at, total = i + p0, v.float32(0.0)
                for t in range(max(0, (at - k + s) // s), min(columns, at // s + 1)):
                    total += ld(x + t * v.nb(p, 1, 1) + (at - t * s) * size)
                st(d + i * size, total)


for _element in FLOATS:
    _col2im(_element)
