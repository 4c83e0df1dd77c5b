"""UPSCALE: each pixel of dst is a weighted sum of a few pixels of src0 (taps)."""

from __future__ import annotations

from ggml_cpu import vocabulary as v
from ggml_cpu.kernel import fn, kernel
from ggml_cpu.kernels._common import n_rows, row_address, types_are
from ggml_cpu.kernels._moves import copy_bytes
from ggml_py.tensor import Tensor

NEAREST, BILINEAR, BICUBIC, KIND, ALIGN_CORNERS, ANTIALIAS = 0, 1, 2, 0xFF, 1 << 8, 1 << 9
CUBIC = -0.75


def n_taps(node: Tensor) -> int:
    """Return the maximum number of source pixels per pixel of dst along a dimension."""
    mode = node.param("mode")
    if mode & ANTIALIAS:
        shrink = max(a / b for a, b in zip(node.source(0).ne[:2], node.ne[:2], strict=True))
        return 2 * int(max(1, shrink)) + 3
    return {NEAREST: 1, BILINEAR: 2, BICUBIC: 4}[mode & KIND]


@fn
def taps_bytes(count: int, n: int) -> int:
    """Return the bytes of the taps of `count` columns or rows: first source pixel and n weights."""
    return count * 4 * (1 + n)


def upscale_scratch(node: Tensor, nth: int) -> tuple[int, int]:
    """Return scratch bytes (shared, local).

    Shared: the taps of all columns, then of all rows. Columns are stored as arrays (all first
    pixels, all first weights, ...), rows one after another. Local: a row of the source.
    """
    return taps_bytes(node.ne[0] + node.ne[1], n_taps(node)), 4 * node.source(0).ne[0]


@fn
def near_weight(x):
    """Return the bicubic weight of a pixel at distance x <= 1 (Keys)."""
    return v.float32(((CUBIC + 2.0) * x - (CUBIC + 3.0)) * x * x + 1.0)


@fn
def far_weight(x):
    """Return the bicubic weight of a pixel at distance 1 <= x <= 2."""
    return v.float32(((CUBIC * x - 5.0 * CUBIC) * x + 8.0 * CUBIC) * x - 4.0 * CUBIC)


@fn
def triangle_taps(to, step, n, x, size, shrink):
    """Store the taps of an antialiasing triangle filter.

    It covers pixels within `shrink` of x; the weights are normalized to sum 1.
    """
    half = v.float32(0.5)
    first = max(0, int(x + half - shrink + half))
    last = min(size, int(x + half + shrink + half))
    v.st_i32(to, first)
    total = v.float32(0.0)
    for t in range(n):
        w = v.float32(0.0)
        if first + t < last:
            away = v.fabsf(v.float32(first + t) - x) / shrink
            w = max(v.float32(1.0) - away, v.float32(0.0))
        v.st_f32(to + step * (1 + t), w)
        total += w
    for t in range(1, n + 1):
        v.st_f32(to + step * t, v.ld_f32(to + step * t) / total)


@fn
def find_taps(to, step, n, mode, i, n_out, n_in):
    """Store the taps of pixel i of dst along one dimension, in words `step` bytes apart."""
    half = v.float32(0.5)
    scale = v.float32(n_out) / v.float32(n_in)
    if mode & ALIGN_CORNERS:
        half = v.float32(0.0)
        if n_out > 1 and n_in > 1:
            scale = v.float32(n_out - 1) / v.float32(n_in - 1)
    kind = mode & KIND
    x = (v.float32(i) + half) / scale - half
    first = int(v.floorf(x))
    part = x - v.float32(first)
    if kind == NEAREST:
        v.st_i32(to, int(v.float32(i) / scale))
        v.st_f32(to + step, v.float32(1.0))
    elif mode & ANTIALIAS:
        triangle_taps(to, step, n, x, n_in, max(v.float32(1.0), v.float32(1.0) / scale))
    elif kind == BILINEAR:
        v.st_i32(to, first)
        v.st_f32(to + step, v.float32(1.0) - part)
        v.st_f32(to + 2 * step, part)
    else:
        v.st_i32(to, first - 1)
        v.st_f32(to + step, far_weight(part + v.float32(1.0)))
        v.st_f32(to + 2 * step, near_weight(part))
        v.st_f32(to + 3 * step, near_weight(v.float32(1.0) - part))
        v.st_f32(to + 4 * step, far_weight(v.float32(2.0) - part))


@kernel()
def upscale_taps(p, ith, nth):
    n0, n, mode = v.ne(p, 0, 0), v.extra(p, 0), v.op_i32(p, 0)
    start, stop = v.split(n0 + v.ne(p, 0, 1), ith, nth)
    for i in range(start, stop):
        if i < n0:
            find_taps(v.shared(p) + 4 * i, 4 * n0, n, mode, i, n0, v.ne(p, 1, 0))
        else:
            to = v.shared(p) + taps_bytes(i, n)
            find_taps(to, 4, n, mode, i - n0, v.ne(p, 0, 1), v.ne(p, 1, 1))


@fn
def source_plane(i, n_out, n_in):
    return int(v.float32(i) / (v.float32(n_out) / v.float32(n_in)))


@fn
def blend_rows(p, plane, taps, n, to):
    """Store at `to` the weighted sum of the source rows for one row of dst."""
    width, height, b0 = v.ne(p, 1, 0), v.ne(p, 1, 1), v.nb(p, 1, 0)
    for i in range(0, width, v.LANES):
        v.store_n(to + 4 * i, v.f32(0.0), width - i)
    for t in range(n):
        w = v.ld_f32(taps + 4 + 4 * t)
        if w != v.float32(0.0):
            row = plane + min(max(v.ld_i32(taps) + t, 0), height - 1) * v.nb(p, 1, 1)
            if b0 == 4:
                for i in range(0, width, v.LANES):
                    y = v.f32_load_n(row + 4 * i, width - i) * w
                    v.store_n(to + 4 * i, y + v.f32_load_n(to + 4 * i, width - i), width - i)
            else:
                for i in range(width):
                    v.st_f32(to + 4 * i, v.ld_f32(to + 4 * i) + w * v.ld_f32(row + i * b0))


@fn
def blend_columns(d, x, last, taps, n, n0):
    """Store at d the weighted sums of pixels of row x; last: index of its last pixel."""
    for i in range(0, n0, v.LANES):
        first, total = v.i32_load_n(taps + 4 * i, n0 - i), v.f32(0.0)
        for t in range(n):
            w = v.f32_load_n(taps + 4 * (n0 * (1 + t) + i), n0 - i)
            total = v.fma(w, v.f32_gather(x, v.vmin(v.vmax(first + t, 0), last)), total)
        v.store_n(d + 4 * i, total, n0 - i)


@kernel(
    "UPSCALE",
    when=types_are("f32", "f32"),
    scratch=upscale_scratch,
    prepare=(upscale_taps,),
    extra=lambda node: (n_taps(node),),
)
def upscale_f32(p, ith, nth):
    """Blend the source rows of each row of dst, then the columns of the result.

    With one tap, a row of dst is copied if the previous one has the same source row.
    """
    n0, n1, n2, n3 = v.ne(p, 0, 0), v.ne(p, 0, 1), v.ne(p, 0, 2), v.ne(p, 0, 3)
    n, last, before, above = v.extra(p, 0), v.ne(p, 1, 0) - 1, 0, 0
    start, stop = v.split(n_rows(p, 0), ith, nth)
    for r in range(start, stop):
        i2 = source_plane(r // n1 % n2, n2, v.ne(p, 1, 2))
        i3 = source_plane(r // (n1 * n2), n3, v.ne(p, 1, 3))
        plane = v.data(p, 1) + i2 * v.nb(p, 1, 2) + i3 * v.nb(p, 1, 3)
        taps = v.shared(p) + taps_bytes(n0 + r % n1, n)
        d, row = (
            row_address(p, 0, r),
            plane + min(v.ld_i32(taps), v.ne(p, 1, 1) - 1) * v.nb(p, 1, 1),
        )
        if n == 1 and row == before:
            copy_bytes(d, above, 4 * n0)
        elif n == 1 and v.nb(p, 1, 0) == 4:
            blend_columns(d, row, last, v.shared(p), n, n0)
        else:
            blend_rows(p, plane, taps, n, v.local(p, ith))
            blend_columns(d, v.local(p, ith), last, v.shared(p), n, n0)
        before, above = row, d
