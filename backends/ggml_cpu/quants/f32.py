"""f32 weights and activations."""

from __future__ import annotations

from ggml_cpu.blocks.activations import F32
from ggml_cpu.blocks.floats import f32_weight, load_f32, load_f32_n
from ggml_cpu.blocks.format import register

register(f32_weight("f32", F32, load_f32, load_f32_n))
