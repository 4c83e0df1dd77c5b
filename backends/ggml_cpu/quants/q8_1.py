"""q8_1: 32 int8 with one scale, 36 bytes (ggml-common.h:block_q8_1); ggml activations only.

Scale f16 | scale * sum f16 | i8 [32]
"""

from __future__ import annotations

from ggml_cpu import vocabulary as v
from ggml_cpu.blocks.format import Format, register
from ggml_cpu.blocks.rounding import store_scaled
from ggml_cpu.blocks.walk import dequantize
from ggml_cpu.kernel import fn
from ggml_py.types import BY_NAME


@fn
def decode(block, x):
    store_scaled(block + 4, 32, v.ld_f16(block), x)


Q8_1 = BY_NAME["q8_1"]
register(Format(type=Q8_1, dequantize=dequantize(Q8_1, decode)))
