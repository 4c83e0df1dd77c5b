"""f32 weights."""

from __future__ import annotations

from ggml_cpu.quants.activations import F32
from ggml_cpu.quants.floats import f32_weight, load_f32, load_f32_n
from ggml_cpu.quants.weight import register
from ggml_py.types import BY_NAME

register(f32_weight(BY_NAME["f32"], F32, load_f32, load_f32_n))
