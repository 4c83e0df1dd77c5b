"""f16 weights: 16-bit integers for large batches, f32 with activations rounded to f16 for others.

CPUs without VNNI use f32 for all batches. On Zen 4 weights are repacked to integers at load; this
has not been measured on other CPUs.
"""

from __future__ import annotations

from dataclasses import replace

from ggml_cpu import target
from ggml_cpu import vocabulary as v
from ggml_cpu.blocks import integers16
from ggml_cpu.blocks.activations import F16
from ggml_cpu.blocks.floats import f32_weight
from ggml_cpu.blocks.format import register
from ggml_cpu.kernel import fn

FEW = 16  # largest batch that is faster with f32 than with weights converted to integers


@fn
def load(address):
    return v.f16_load(address)


@fn
def load_n(address, n):
    return v.f16_load_n(address, n)


_in_f32 = f32_weight("f16", F16, load, load_n)

if target.VNNI:
    register(
        replace(
            _in_f32,
            activations=integers16.INTEGERS,
            of_dots=F16,
            few=FEW,
            panel=integers16.panel_bytes,
            k_block=integers16.K_BLOCK,
            unpack=integers16.unpacker(load_n, 2),
            tile=integers16.tile,
            together=integers16.TOGETHER,
            rounded=target.ZEN4,
        )
    )
else:
    register(_in_f32)
