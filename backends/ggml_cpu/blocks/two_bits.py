"""Values of two bits, four to a byte."""

from __future__ import annotations

from ggml_cpu import vocabulary as v
from ggml_cpu.kernel import fn


@fn
def pairs_of(address, shift):
    """16 values 0..3 from bit `shift` of 16 bytes, as f32."""
    return v.to_f32((v.zext_i32(v.i8x16_load(address)) >> shift) & 3)
