"""CONV_TRANSPOSE_1D, CONV_TRANSPOSE_2D: transposed convolutions.

Every element of the kernel, a tap, adds its products to each `stride`-th element of a row of the
result. While a row is summed, elements of one phase (index modulo stride) are contiguous.
"""

from __future__ import annotations

from ggml_cpu import vocabulary as v
from ggml_cpu.kernel import Function, fn, kernel
from ggml_cpu.kernels._common import F16, F32, Element, dense_rows, require_all, types_are
from ggml_cpu.kernels._moves import copy_bytes, fill_words
from ggml_cpu.target import LANES, TILE
from ggml_py.tensor import Tensor

SPAN = 8 * LANES  # input elements multiplied by a tile of taps while the tile is in the L1 cache


@fn
def places_bytes(taps: int) -> int:
    """Return the bytes of the taps' offsets in the result; the weights follow in scratch."""
    return 8 * taps


@fn
def weights_per_channel(taps: int) -> int:
    """Return the weights per channel: one per tap, and TILE more for reads past the end."""
    return taps + TILE


def transposed_scratch(node: Tensor, nth: int) -> tuple[int, int]:
    """Return scratch bytes. Shared: tap offsets, weights of all channels as f32; local: a row."""
    a = node.source(0)
    channels = a.ne[2 if node.op == "CONV_TRANSPOSE_1D" else 3]
    taps = a.n_elements // channels
    return places_bytes(taps) + 4 * channels * weights_per_channel(taps), 4 * node.ne[0]


@fn
def line_shape(p):
    """Return sizes and strides of the 1-d op.

    The tuples are: (kernel width, height, output channels, input channels), (input width, height,
    batches), then (row, channel, batch) strides in bytes of kernel, input and result. The kernel's
    channel stride is for output channels, its batch stride for input channels.
    """
    return (
        (v.ne(p, 1, 0), 1, v.ne(p, 1, 1), v.ne(p, 1, 2)),
        (v.ne(p, 2, 0), 1, 1),
        (0, v.nb(p, 1, 1), v.nb(p, 1, 2)),
        (0, v.nb(p, 2, 1), 0),
        (0, v.nb(p, 0, 1), 0),
    )


@fn
def plane_shape(p):
    """Return the tuples of `line_shape` for the 2-d op."""
    return (
        (v.ne(p, 1, 0), v.ne(p, 1, 1), v.ne(p, 1, 2), v.ne(p, 1, 3)),
        (v.ne(p, 2, 0), v.ne(p, 2, 1), v.ne(p, 2, 3)),
        (v.nb(p, 1, 1), v.nb(p, 1, 2), v.nb(p, 1, 3)),
        (v.nb(p, 2, 1), v.nb(p, 2, 2), v.nb(p, 2, 3)),
        (v.nb(p, 0, 1), v.nb(p, 0, 2), v.nb(p, 0, 3)),
    )


@fn
def index_by_phase(i, n, stride):
    """Return the index of element i of a row of n while it is summed, grouped by phase."""
    phase = i % stride
    return phase * (n // stride) + min(phase, n % stride) + i // stride


@fn
def in_order(d, n, stride, spare):
    """Restore the order of elements in a summed row."""
    copy_bytes(spare, d, 4 * n)
    for phase in range(min(stride, n)):
        s = spare + 4 * index_by_phase(phase, n, stride)
        for i in range(phase, n, stride):
            v.st_f32(d + 4 * i, v.ld_f32(s))
            s += 4


@fn
def add_products(d, places, count, taps, width, x, channel, channels, n):
    """Add the products of n input elements and TILE taps to d + places[t], for taps t < count.

    Products are summed over the channels. width: taps per channel; channel: bytes between channels
    of the input.
    """
    sums = v.f32_tile()
    for c in range(channels):
        y = v.f32_load_n(x + c * channel, n)
        for t in range(v.TILE):
            sums[t] = v.fma(v.f32_bcast(taps + 4 * (c * width + t)), y, sums[t])
    for t in range(v.TILE):
        if t < count:
            to = d + v.ld_i64(places + 8 * t)
            v.store_n(to, v.f32_load_n(to, n) + sums[t], n)


@fn
def add_row(d, x, first, last, places, weights, shape):
    """Add the products of a row of input, all channels, and the taps first .. last."""
    (kw, kh, oc, channels), (n, _, _), _, (_, channel, _), _ = shape
    width = weights_per_channel(kw * kh * oc)
    for start in range(0, n, SPAN):
        for u in range(first, last, v.TILE):
            for i in range(start, min(n, start + SPAN), v.LANES):
                add_products(
                    d + 4 * i,
                    places + 8 * u,
                    last - u,
                    weights + 4 * u,
                    width,
                    x + 4 * i,
                    channel,
                    channels,
                    n - i,
                )


def _declare(op: str, read_shape: Function, element: Element) -> None:
    ld, size = element.ld, element.size
    when = require_all(types_are("f32", element.name, "f32"), dense_rows)

    @kernel(name=f"{op.lower()}_taps_{element.name}")
    def taps_apart(p, ith, nth):
        """Store the taps' offsets, and the weights by input channel, taps contiguous."""
        (kw, kh, oc, channels), _, (row, plane, cube), _, (down, across, _) = read_shape(p)
        taps, n0, stride = kw * kh * oc, v.ne(p, 0, 0), v.op_i32(p, 0)
        weights = v.shared(p) + places_bytes(taps)
        start, stop = v.split(kh * oc, ith, nth)
        for u in range(start, stop):
            a, to = v.data(p, 1) + u % kh * row + u // kh * plane, u * kw
            for k in range(kw):
                place = u % kh * down + u // kh * across + 4 * index_by_phase(k, n0, stride)
                v.st_i64(v.shared(p) + 8 * (to + k), place)
            for c in range(channels):
                for k in range(kw):
                    w = ld(a + c * cube + k * size)
                    v.st_f32(weights + 4 * (c * weights_per_channel(taps) + to + k), w)

    @kernel(
        op,
        when=when,
        scratch=transposed_scratch,
        prepare=(taps_apart,),
        name=f"{op.lower()}_{element.name}",
    )
    def conv_transpose(p, ith, nth):
        """Compute planes of the result; a thread computes whole planes."""
        shape = read_shape(p)
        (kw, kh, oc, _), (_, height, batches), _, (row, _, image), (down, across, result) = shape
        n0, n1, stride = v.ne(p, 0, 0), (height - 1) * v.op_i32(p, 0) + kh, v.op_i32(p, 0)
        places, taps = v.shared(p), kw * kh
        weights = places + places_bytes(taps * oc)
        start, stop = v.split(oc * batches, ith, nth)
        for b in range(batches):
            first, last = max(0, start - b * oc), min(oc, stop - b * oc)
            d, x = v.data(p, 0) + b * result, v.data(p, 2) + b * image
            for u in range(first * n1, last * n1):
                fill_words(d + u // n1 * across + u % n1 * down, n0)
            for y in range(height):
                to, source = d + y * stride * down, x + y * row
                add_row(to, source, first * taps, last * taps, places, weights, shape)
            if stride > 1:
                for u in range(first * n1, last * n1):
                    in_order(d + u // n1 * across + u % n1 * down, n0, stride, v.local(p, ith))


for _element in (F32, F16):
    _declare("CONV_TRANSPOSE_1D", line_shape, _element)
    _declare("CONV_TRANSPOSE_2D", plane_shape, _element)
