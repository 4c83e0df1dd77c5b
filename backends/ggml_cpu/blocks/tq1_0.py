"""tq1_0: 54 bytes: five values to a byte [48] | four to a byte [4] | scale f16.

A byte is a fraction of 256 in base 3: times 3^n modulo 256, its leading digit is value n.
"""

from __future__ import annotations

from ggml_cpu import vocabulary as v
from ggml_cpu.blocks.format import register
from ggml_cpu.kernel import fn

BYTES = 54


@fn
def digits(src, n_bytes, n_digits, scale, dst):
    """First digits of all bytes, then second digits..."""
    power = 1
    for i in range(n_digits):
        for j in range(n_bytes):
            digit = (((v.ld_u8(src + j) * power) & 255) * 3) >> 8
            v.st_f32(dst + 4 * (i * n_bytes + j), v.float32(digit - 1) * scale)
        power *= 3


@fn
def dequantize(src, n, dst):
    for _ in range(n // 256):
        scale = v.ld_f16(src + 52)
        digits(src, 32, 5, scale, dst)
        digits(src + 32, 16, 5, scale, dst + 640)
        digits(src + 48, 4, 4, scale, dst + 960)
        src += BYTES
        dst += 1024


register("tq1_0", dequantize=dequantize)
