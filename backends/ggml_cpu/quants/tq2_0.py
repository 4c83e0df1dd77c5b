"""tq2_0: 256 values -1, 0 or 1 with one scale, 66 bytes (ggml-common.h:block_tq2_0).

Two bits plus 1 [2][32], 32 apart in a byte | d f16
"""

from __future__ import annotations

from ggml_cpu import vocabulary as v
from ggml_cpu.kernel import fn
from ggml_cpu.quants.unpacked import Decoder, weight
from ggml_cpu.quants.weight import register
from ggml_py.types import BY_NAME


@fn
def bytes_of(block, j):
    packed = v.i8x32_load(block + j // 2 * 32) >> (j % 2 * 4)
    return v.concat(packed, packed >> 2) & 3


@fn
def scales_of(block, j):
    return v.f32x2(v.ld_f16(block + 64))


register(weight(Decoder(BY_NAME["tq2_0"], 32, bytes_of, scales_of, offset=1, cheap=True)))
