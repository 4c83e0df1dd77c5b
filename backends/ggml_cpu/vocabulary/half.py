"""Conversions of f32 to and from raw i16 f16 or bf16: round to nearest even, NaN -> NaN."""

from __future__ import annotations

from llvmlite import ir

from ggml_cpu.target import HALF

from .lanes import WORDS, select
from .math import vabs
from .vec import Vec, inlined, intrinsic

as_f32, as_i32, to_i16, zext_i32 = (WORDS[w] for w in ("as_f32", "as_i32", "to_i16", "zext_i32"))


@intrinsic
def _hardware_f16_to_f32(typing, h):
    if not (isinstance(h, Vec) and h.elem == "i16"):
        return None
    result = h.with_elem("f32")

    def emit(context, builder, sig, args):
        halves = builder.bitcast(args[0], ir.VectorType(ir.HalfType(), h.n))
        return builder.fpext(halves, result.ir)

    return result(h), emit


@intrinsic
def _hardware_f32_to_f16(typing, x):
    if not (isinstance(x, Vec) and x.elem == "f32"):
        return None
    result = x.with_elem("i16")

    def emit(context, builder, sig, args):
        halves = builder.fptrunc(args[0], ir.VectorType(ir.HalfType(), x.n))
        return builder.bitcast(halves, result.ir)

    return result(x), emit


@inlined
def _portable_f16_to_f32(h):
    """Return f32 of raw f16: scale the exponent by a multiply; subnormals by subtracting 0.5."""
    word = zext_i32(h) << 16
    magnitude = word + word
    normal = as_f32((magnitude >> 4) + (0xE0 << 23)) * 1.9259299443872359e-34  # 2**-112
    subnormal = as_f32((magnitude >> 17) | (126 << 23)) - 0.5
    chosen = select((magnitude >> 17) < 1024, as_i32(subnormal), as_i32(normal))
    return as_f32((word & 0x80000000) | chosen)


@inlined
def _portable_f32_to_f16(x):
    """Return raw f16 of f32; an f32 addition at the right exponent does the rounding."""
    word = as_i32(x)
    magnitude = word & 0x7FFFFFFF
    scaled = (vabs(x) * 5.192296858534828e33) * 7.70371977754894e-34  # 2**112, 2**-110
    exponent = magnitude >> 23
    exponent = select(exponent < 113, 113, exponent)
    rounded = as_i32(as_f32((exponent << 23) + 0x07800000) + scaled)
    finite = ((rounded >> 13) & 0x7C00) + (rounded & 0x0FFF)
    half = select(magnitude > 0x7F800000, 0x7E00, finite)
    return to_i16(((word >> 16) & 0x8000) | half)


@inlined
def bf16_to_f32(h):
    """Convert a raw bf16 (i16) vector to f32."""
    return as_f32(zext_i32(h) << 16)


@inlined
def f32_to_bf16(x):
    """Convert an f32 vector to raw bf16 (i16)."""
    word = as_i32(x)
    rounded = (word + 0x7FFF + ((word >> 16) & 1)) >> 16
    return to_i16(select(x != x, (word >> 16) | 64, rounded))


f16_to_f32 = _hardware_f16_to_f32 if HALF else _portable_f16_to_f32
f32_to_f16 = _hardware_f32_to_f16 if HALF else _portable_f32_to_f16
