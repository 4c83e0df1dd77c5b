"""CONV_2D_DW: depthwise convolution, one kernel per channel."""

from __future__ import annotations

from ggml_cpu import vocabulary as v
from ggml_cpu.kernel import fn, kernel
from ggml_cpu.kernels._common import F16, F32, Element, require_all, types_are
from ggml_py.tensor import Tensor


def channels_inside(node: Tensor) -> str:
    """Accept nodes if channels are contiguous in the kernel, the image and the result."""
    a, b = node.sources(2)
    inside = a.nb[3] == a.type.type_size and b.nb[2] == 4 and node.nb[2] == 4
    return "" if inside else "needs adjacent channels"


@fn
def taps_inside(place, n_in, k, s, p, d):
    """Return (first, last + 1) of the k taps inside the n_in elements of the input.

    s, p, d: stride, padding, dilation.
    """
    at = place * s - p
    first = max(0, (d - 1 - at) // d)
    return first, min(k, (n_in - 1 - at) // d + 1)


@fn
def axpy(d, d_step, x, x_step, w, n):
    """Compute d += w * x for n elements, d_step and x_step bytes apart."""
    i = 0
    if d_step == 4 and x_step == 4:
        while i + v.LANES <= n:
            v.store(d + 4 * i, v.fma(v.f32_load(x + 4 * i), v.f32(w), v.f32_load(d + 4 * i)))
            i += v.LANES
    while i < n:
        v.st_f32(d + i * d_step, v.ld_f32(d + i * d_step) + w * v.ld_f32(x + i * x_step))
        i += 1


def _depthwise(element: Element) -> None:
    ld, load_n = element.ld, element.load_n
    types = types_are("f32", element.name, "f32")

    @kernel(
        "CONV_2D_DW",
        when=require_all(types, channels_inside),
        rank=1,
        name=f"conv_2d_dw_{element.name}_c",
    )
    def channels(p, ith, nth):
        """Compute a vector of channels at a time."""
        ow, oh, c = v.ne(p, 0, 0), v.ne(p, 0, 1), v.ne(p, 0, 2)
        start, stop = v.split(ow * oh * v.ne(p, 0, 3), ith, nth)
        for u in range(start, stop):
            x, y, n = u % ow, u // ow % oh, u // (ow * oh)
            d = v.data(p, 0) + x * v.nb(p, 0, 0) + y * v.nb(p, 0, 1) + n * v.nb(p, 0, 3)
            sx, px, dx = v.op_i32(p, 0), v.op_i32(p, 2), v.op_i32(p, 4)
            sy, py, dy = v.op_i32(p, 1), v.op_i32(p, 3), v.op_i32(p, 5)
            x0, x1 = taps_inside(x, v.ne(p, 2, 0), v.ne(p, 1, 0), sx, px, dx)
            y0, y1 = taps_inside(y, v.ne(p, 2, 1), v.ne(p, 1, 1), sy, py, dy)
            image = v.data(p, 2) + n * v.nb(p, 2, 3)
            for i in range(0, c, v.LANES):
                total = v.f32(0.0)
                for ky in range(y0, y1):
                    row = image + (y * sy + ky * dy - py) * v.nb(p, 2, 1) + 4 * i
                    taps = v.data(p, 1) + ky * v.nb(p, 1, 1) + i * v.nb(p, 1, 3)
                    for kx in range(x0, x1):
                        w = load_n(taps + kx * v.nb(p, 1, 0), c - i)
                        at = row + (x * sx + kx * dx - px) * v.nb(p, 2, 0)
                        total = v.fma(w, v.f32_load_n(at, c - i), total)
                v.store_n(d + 4 * i, total, c - i)

    @kernel("CONV_2D_DW", when=types, name=f"conv_2d_dw_{element.name}")
    def rows(p, ith, nth):
        """Compute a row of the result at a time, tap by tap."""
        ow, oh, c = v.ne(p, 0, 0), v.ne(p, 0, 1), v.ne(p, 0, 2)
        sx, px, dx = v.op_i32(p, 0), v.op_i32(p, 2), v.op_i32(p, 4)
        sy, py, dy = v.op_i32(p, 1), v.op_i32(p, 3), v.op_i32(p, 5)
        w, b0, step = v.ne(p, 2, 0), v.nb(p, 0, 0), sx * v.nb(p, 2, 0)
        start, stop = v.split(oh * c * v.ne(p, 0, 3), ith, nth)
        for u in range(start, stop):
            y, i, n = u % oh, u // oh % c, u // (oh * c)
            d = v.data(p, 0) + y * v.nb(p, 0, 1) + i * v.nb(p, 0, 2) + n * v.nb(p, 0, 3)
            image = v.data(p, 2) + i * v.nb(p, 2, 2) + n * v.nb(p, 2, 3)
            for x in range(ow):
                v.st_f32(d + x * b0, v.float32(0.0))
            y0, y1 = taps_inside(y, v.ne(p, 2, 1), v.ne(p, 1, 1), sy, py, dy)
            for ky in range(y0, y1):
                row = image + (y * sy + ky * dy - py) * v.nb(p, 2, 1)
                taps = v.data(p, 1) + ky * v.nb(p, 1, 1) + i * v.nb(p, 1, 3)
                for kx in range(v.ne(p, 1, 0)):
                    shift = kx * dx - px
                    first = max(0, (sx - 1 - shift) // sx)
                    last = min(ow, (w - 1 - shift) // sx + 1)
                    at = row + (first * sx + shift) * v.nb(p, 2, 0)
                    tap = ld(taps + kx * v.nb(p, 1, 0))
                    axpy(d + first * b0, b0, at, step, tap, last - first)


for _element in (F32, F16):
    _depthwise(_element)
