"""iq4_nl: indices of uneven levels with a scale f16, 18 bytes (ggml-common.h:block_iq4_nl)."""

from __future__ import annotations

from ggml_cpu import vocabulary as v
from ggml_cpu.kernel import fn
from ggml_cpu.quants.levels import UNEVEN
from ggml_cpu.quants.nonlinear import weight
from ggml_cpu.quants.weight import register
from ggml_cpu.target import I8_BIAS
from ggml_py.types import BY_NAME


@fn
def copy_scale(src, dst):
    v.st_u16(dst, v.ld_u16(src))


@fn
def scale_of(block):
    return v.ld_f16(block)


@fn
def scales_of(panel):
    return v.f16_load(panel)


register(weight(BY_NAME["iq4_nl"], UNEVEN, I8_BIAS, copy_scale, scale_of, scales_of))
