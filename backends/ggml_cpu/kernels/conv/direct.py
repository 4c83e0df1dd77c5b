"""CONV_2D, CONV_3D: unfold TILE positions into columns, then multiply by the transposed kernel.

The kernel is transposed once, to f32 [output channels, taps]. Rows are padded to full vectors.
"""

from __future__ import annotations

from collections.abc import Callable

from ggml_cpu import vocabulary as v
from ggml_cpu.kernel import fn, kernel
from ggml_cpu.kernels._common import BF16, F16, F32, Element, pad_to_lanes, require_all
from ggml_cpu.kernels.conv._unfold import plane_image, types_beside_kernel, unfolder, volume_image
from ggml_cpu.target import TILE
from ggml_py.tensor import Tensor


def _taps(node: Tensor) -> tuple[int, int]:
    """Return (taps per output channel, output channels); taps include the input channels."""
    a = node.source(0)
    oc = node.param("oc") if node.op == "CONV_3D" else a.ne[3]
    return a.n_elements // oc, oc


def direct_scratch(node: Tensor, nth: int) -> tuple[int, int]:
    taps, oc = _taps(node)
    return 4 * taps * pad_to_lanes(oc), 4 * taps * TILE


def dense_kernels(node: Tensor) -> str:
    """Accept contiguous kernels: dimension 3 of CONV_3D's is input times output channels."""
    a = node.source(0)
    return "" if a.is_contiguous() else f"needs a contiguous kernel; got strides {a.nb}"


def float_image(node: Tensor) -> str:
    return types_beside_kernel("f32", "f32")(node)


def require_kernel_type(element: Element) -> Callable[[Tensor], str]:
    def check(node: Tensor) -> str:
        t = node.source(0).type
        return "" if t.name == element.name else f"needs a kernel of {element.name}; got {t}"

    return check


@fn
def multiply(to, stride, columns, weights, taps, width, count, rows):
    """Compute to[t, i] = sum over taps of columns[tap, t] * weights[tap, i].

    Stores `count` positions t of up to `rows` channels i (at most LANES), `stride` bytes apart.
    width: channels per row of weights.
    """
    sums = v.f32_tile()
    for k in range(taps):
        w = v.f32_load(weights + 4 * k * width)
        for t in range(v.TILE):
            sums[t] = v.fma(v.f32_bcast(columns + 4 * (k * v.TILE + t)), w, sums[t])
    for t in range(v.TILE):
        if t < count:
            y = sums[t]
            for i in range(v.LANES):
                if i < rows:
                    v.st_f32(to + 4 * t + i * stride, v.lane(y, i))


def _direct(element: Element) -> None:
    ld, size, unfold = element.ld, element.size, unfolder(F32, F32)

    @kernel(name=f"conv_2d_taps_{element.name}")
    def plane_taps(p, ith, nth):
        kw, kh, c, oc = v.ne(p, 1, 0), v.ne(p, 1, 1), v.ne(p, 1, 2), v.ne(p, 1, 3)
        width = pad_to_lanes(oc)
        start, stop = v.split(kw * kh * c, ith, nth)
        for k in range(start, stop):
            x, y, z = k % kw, k // kw % kh, k // (kw * kh)
            a = v.data(p, 1) + x * v.nb(p, 1, 0) + y * v.nb(p, 1, 1) + z * v.nb(p, 1, 2)
            for i in range(width):
                value = ld(a + i * v.nb(p, 1, 3)) if i < oc else v.float32(0.0)
                v.st_f32(v.shared(p) + 4 * (k * width + i), value)

    @kernel(name=f"conv_3d_taps_{element.name}")
    def volume_taps(p, ith, nth):
        oc = v.op_i32(p, 11)
        taps = v.ne(p, 1, 0) * v.ne(p, 1, 1) * v.ne(p, 1, 2) * v.op_i32(p, 9)
        width = pad_to_lanes(oc)
        start, stop = v.split(taps, ith, nth)
        for k in range(start, stop):
            for i in range(width):
                value = ld(v.data(p, 1) + (i * taps + k) * size) if i < oc else v.float32(0.0)
                v.st_f32(v.shared(p) + 4 * (k * width + i), value)

    @fn
    def convolve(p, image, n, taps, oc, batch, stride, ith, nth):
        """Compute the convolution of n images.

        Results of images are `batch` bytes apart, channels `stride` bytes apart; positions are
        contiguous.
        """
        ow, oh, od = image[2]
        places, columns = ow * oh * od, v.local(p, ith)
        width = pad_to_lanes(oc)
        tiles = (places + v.TILE - 1) // v.TILE
        start, stop = v.split(tiles * n, ith, nth)
        for tile in range(start, stop):
            first = tile % tiles * v.TILE
            count = min(v.TILE, places - first)
            u = tile // tiles * places + first
            for t in range(v.TILE):
                unfold(columns + 4 * t, 4 * v.TILE, image, u + min(t, count - 1))
            to = v.data(p, 0) + tile // tiles * batch + 4 * first
            for i in range(0, oc, v.LANES):
                multiply(
                    to + i * stride,
                    stride,
                    columns,
                    v.shared(p) + 4 * i,
                    taps,
                    width,
                    count,
                    oc - i,
                )

    when = require_all(float_image, require_kernel_type(element))

    @kernel(
        "CONV_2D",
        when=when,
        scratch=direct_scratch,
        prepare=(plane_taps,),
        name=f"conv_2d_{element.name}",
    )
    def conv_2d(p, ith, nth):
        taps = v.ne(p, 1, 0) * v.ne(p, 1, 1) * v.ne(p, 1, 2)
        image = plane_image(p, v.ne(p, 0, 0), v.ne(p, 0, 1))
        n, oc = v.ne(p, 0, 3), v.ne(p, 0, 2)
        convolve(p, image, n, taps, oc, v.nb(p, 0, 3), v.nb(p, 0, 2), ith, nth)

    @kernel(
        "CONV_3D",
        when=require_all(when, dense_kernels),
        scratch=direct_scratch,
        prepare=(volume_taps,),
        name=f"conv_3d_{element.name}",
    )
    def conv_3d(p, ith, nth):
        channels, oc = v.op_i32(p, 9), v.op_i32(p, 11)
        taps = v.ne(p, 1, 0) * v.ne(p, 1, 1) * v.ne(p, 1, 2) * channels
        image = volume_image(p, channels, v.ne(p, 0, 0), v.ne(p, 0, 1), v.ne(p, 0, 2))
        n, stride = v.op_i32(p, 10), v.nb(p, 0, 3)
        convolve(p, image, n, taps, oc, oc * stride, stride, ith, nth)


for _element in (F32, F16, BF16):
    _direct(_element)
