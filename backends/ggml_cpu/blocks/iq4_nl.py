"""iq4_nl: 18 bytes: scale f16 | level numbers in nibbles as in q4_0."""

from __future__ import annotations

from ggml_cpu import vocabulary as v
from ggml_cpu.blocks.format import register
from ggml_cpu.blocks.rounding import extreme, inverse, store_nibbles
from ggml_cpu.blocks.uneven import FIRST, level_at, nearest_level
from ggml_cpu.kernel import fn

BYTES = 18
TINY = 1e-15  # smaller blocks are zero


@fn
def fitted(x, y, q, r):
    """The scale of least squares, weighted by the squares of the values."""
    a, b = level_at(q), level_at(r)
    xq = v.vsum(x * x * a * x + y * y * b * y)
    qq = v.vsum(x * x * a * a + y * y * b * b)
    return v.float32(xq * inverse(qq))


@fn
def quantize(src, n, dst):
    for _ in range(n // 32):
        x, y = v.f32x16_load(src), v.f32x16_load(src + 64)
        top = extreme(src, x, y)
        if abs(top) < TINY:
            v.st_f16(dst, v.float32(0.0))
            store_nibbles(dst + 2, v.i32x16(0), v.i32x16(0))
        else:
            factor = v.float32(1.0) / v.float32(top / v.float32(FIRST))
            q, r = nearest_level(x * factor), nearest_level(y * factor)
            v.st_f16(dst, fitted(x, y, q, r))
            store_nibbles(dst + 2, q, r)
        src += 128
        dst += BYTES


register("iq4_nl", quantize=quantize)
