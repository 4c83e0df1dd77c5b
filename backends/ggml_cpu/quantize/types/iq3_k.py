"""Quantizer of iq3_k (iqk_quantize.cpp:quantize_row_iq3_k_impl of ik_llama.cpp).

d f16 | shifts u16 | signs u16 | codes u8 [8] | lower two bits u8 [64] | third bits u8 [32].
"""

from __future__ import annotations

from ggml_cpu import vocabulary as v
from ggml_cpu.blocks.search import nearest
from ggml_cpu.kernel import fn
from ggml_cpu.quantize.format import register
from ggml_cpu.quantize.lanes import SCALES, STEPS, load_integers, max_magnitude, put_byte, put_bytes
from ggml_cpu.quantize.shifted import (
    ScaleSteps,
    build_search,
    put_shift_bits,
    put_thirds,
    quantize_blocks,
    weigh_groups,
)


@fn
def start(m):
    return max_magnitude(m + SCALES, 16) / v.float32(31.0)


@fn
def round(factor, scale):
    """Return an odd step, 1 to 31, with the sign of the scale."""
    code = nearest(v.fma(factor, v.vabs(scale), -1.0) * 0.5)
    step = v.vmin(v.vmax(code, 0.0), 15.0) * 2.0 + 1.0
    return v.select(scale < 0.0, -step, step)


@fn
def finish(d):
    return d * v.float32(1.01)


@fn
def put_block(m):
    put_shift_bits(m, 2, 16)
    signs = v.i32x16(0)
    for g in range(16):
        signs = signs | v.select(load_integers(m + STEPS, g) < 0, v.i32x16(1 << g), v.i32x16(0))
    put_bytes(m, 4, 2, signs)
    for k in range(8):
        low, high = load_code(m, 2 * k), load_code(m, 2 * k + 1)
        put_byte(m, 6 + k, low | (high << 4))
    put_thirds(m, 14)


@fn
def load_code(m, g):
    step = load_integers(m + STEPS, g)
    return (v.select(step < 0, -step, step) - 1) >> 1


SEARCH = build_search(3, 16, 3, True, stride=2.0)
STEP = ScaleSteps(start, round, finish)
register("iq3_k", *quantize_blocks(SEARCH, weigh_groups(16, 1.5, 0.25), STEP, put_block, 110))
