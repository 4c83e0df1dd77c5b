"""Rows of values -d, 0 and d, d the largest magnitude of the row."""

from __future__ import annotations

from ggml_cpu import vocabulary as v
from ggml_cpu.kernel import fn
from ggml_cpu.quantize.lanes import LEVELS, SIGMA, X, load_lanes, put


@fn
def no_weights(m):
    return


@fn
def no_search(m, found, largest):
    return largest


@fn
def start(m, blocks, largest):
    return v.f32x16_load(m + SIGMA)


@fn
def put_digits(m, d):
    """Store digits 0, 1 or 2; magnitudes below half of d are 1."""
    for i in range(64):
        x = load_lanes(m + X, i)
        digit = v.select(x < 0.0, v.f32x16(0.0), v.f32x16(2.0))
        put(m + LEVELS, i, v.select(v.vabs(x) < d * v.float32(0.5), v.f32x16(1.0), digit))


@fn
def finish(m, d):
    return d
