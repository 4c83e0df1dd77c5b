"""f16 weights; activations are rounded to f16, products and sums are f32."""

from __future__ import annotations

from ggml_cpu import vocabulary as v
from ggml_cpu.blocks.activations import F16
from ggml_cpu.blocks.floats import f32_weight
from ggml_cpu.blocks.format import register
from ggml_cpu.kernel import fn


@fn
def load(address):
    return v.f16_load(address)


@fn
def load_n(address, n):
    return v.f16_load_n(address, n)


register(f32_weight("f16", F16, load, load_n))
