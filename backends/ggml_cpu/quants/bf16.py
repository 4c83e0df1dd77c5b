"""bf16 weights; activations are rounded to bf16, sums are f32."""

from __future__ import annotations

from ggml_cpu import target
from ggml_cpu import vocabulary as v
from ggml_cpu.blocks.activations import BF16, BF16_PAIRS
from ggml_cpu.blocks.amx_pairs import bf16_weight
from ggml_cpu.blocks.bf16_squares import squares_weight
from ggml_cpu.blocks.floats import bf16_pairs_weight, f32_weight
from ggml_cpu.blocks.format import register
from ggml_cpu.kernel import fn


@fn
def load(address):
    return v.bf16_load(address)


@fn
def load_n(address, n):
    return v.bf16_load_n(address, n)


if target.BF16:
    _pairs = bf16_pairs_weight("bf16", BF16_PAIRS)
    if target.AMX:
        _pairs = bf16_weight(_pairs)
    elif target.NEON_BF16:
        _pairs = squares_weight(_pairs)
    register(_pairs)
else:
    register(f32_weight("bf16", BF16, load, load_n))
