"""f16 weights; activations are rounded to f16, products and sums are f32."""

from __future__ import annotations

from ggml_cpu import vocabulary as v
from ggml_cpu.kernel import fn
from ggml_cpu.quants.activations import F16
from ggml_cpu.quants.floats import f32_weight
from ggml_cpu.quants.weight import register
from ggml_py.types import BY_NAME


@fn
def load(address):
    return v.f16_load(address)


@fn
def load_n(address, n):
    return v.f16_load_n(address, n)


register(f32_weight(BY_NAME["f16"], F16, load, load_n))
