"""Sums in eight parts, which ik_llama.cpp's vectors of eight numbers have."""

from __future__ import annotations

from ggml_cpu import vocabulary as v
from ggml_cpu.kernel import fn
from ggml_cpu.quantize.lanes import load_lanes, put


@fn
def clear_parts(tile):
    for i in range(8):
        put(tile, i, v.f32x16(0.0))


@fn
def add_part(tile, i, x, y):
    """Add x * y to a part; parts follow each other in turn."""
    put(tile, i % 8, v.fma(x, y, load_lanes(tile, i % 8)))


@fn
def sum_parts(tile):
    a, b = load_lanes(tile, 0) + load_lanes(tile, 4), load_lanes(tile, 2) + load_lanes(tile, 6)
    c, d = load_lanes(tile, 1) + load_lanes(tile, 5), load_lanes(tile, 3) + load_lanes(tile, 7)
    return (a + b) + (c + d)
