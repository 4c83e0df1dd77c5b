"""Helpers of quantizers, which process 16 blocks at once, one per lane.

A quantizer follows ggml-quants.c, with a vector for each scalar. Each lane is a separate block.
Sums have ggml's order and multiply-adds are not fused, so the bytes are identical to ggml's. If C
skips code with `continue`, the vector code computes it and masks the result.

`m` is the address of a thread's memory. A tile in it has one vector for each value of a block.
"""

from __future__ import annotations

from ggml_cpu import vocabulary as v
from ggml_cpu.blocks.rounding import TINY
from ggml_cpu.blocks.search import MAGIC, nearest
from ggml_cpu.kernel import fn

LANES = 16
VECTOR = 4 * LANES
BLOCK = 256 * VECTOR

# Tiles, as bytes from m: values, weights, levels, and the bytes of blocks.
X, W, LEVELS, BYTES = 0, BLOCK, 2 * BLOCK, 3 * BLOCK
SCALES = BYTES + 256 * LANES
MINIMA = SCALES + 16 * VECTOR
STEPS = MINIMA + 16 * VECTOR
MINIMUM_STEPS = STEPS + 16 * VECTOR
SUMS = MINIMUM_STEPS + 16 * VECTOR
SIGMA = SUMS + 16 * VECTOR  # one vector: mean squares of the blocks' rows
TABLES = SIGMA + VECTOR  # addresses of a codebook's tables
SPARE = TABLES + VECTOR
MEMORY = SPARE + 2 * BLOCK


@fn
def mul(x, y):
    """Return x * y, rounded; LLVM could fuse a plain `*` into an FMA, unlike ggml."""
    return v.fma(x, y, -0.0)


@fn
def load_lanes(tile, i):
    return v.f32x16_load(tile + VECTOR * i)


@fn
def put(tile, i, x):
    v.store(tile + VECTOR * i, x)


@fn
def round_and_clip(x, low, high):
    return v.vmin(v.vmax(nearest(x), low), high)


@fn
def round_product(x, y, low, high):
    """Return x * y as an integer; the product is not rounded before."""
    q = v.fma(x, y, v.f32x16(MAGIC)) - MAGIC
    return v.vmin(v.vmax(q, low), high)


@fn
def load_integers(tile, i):
    return v.to_i32(load_lanes(tile, i))


@fn
def round_to_f16(x):
    """Round x to f16 precision."""
    return v.f16_to_f32(v.f32_to_f16(x))


@fn
def put_byte(m, i, q):
    """Store byte i of the blocks."""
    v.store(m + BYTES + LANES * i, v.to_i8(q))


@fn
def put_bytes(m, i, n, q):
    for j in range(n):
        put_byte(m, i + j, q >> (8 * j))


@fn
def put_half(m, i, x):
    put_bytes(m, i, 2, v.zext_i32(v.f32_to_f16(x)))


@fn
def sum_of_squares(x, n):
    total = v.f32x16(0.0)
    for i in range(n):
        total = total + mul(load_lanes(x, i), load_lanes(x, i))
    return total


@fn
def weigh(x, w, n, sigma2):
    """Replace w by the importance of the values: w * sqrt(sigma2 + x * x)."""
    for i in range(n):
        put(w, i, mul(load_lanes(w, i), v.vsqrt(sigma2 + mul(load_lanes(x, i), load_lanes(x, i)))))


@fn
def sum_lanes(tile, n):
    total = v.f32x16(0.0)
    for i in range(n):
        total = total + load_lanes(tile, i)
    return total


@fn
def max_magnitude(x, n):
    top = v.f32x16(0.0)
    for i in range(n):
        top = v.vmax(v.vabs(load_lanes(x, i)), top)
    return top


@fn
def extreme(x, n):
    """Return the value of largest magnitude of n; the first of a tie."""
    top, most = v.f32x16(0.0), v.f32x16(0.0)
    for i in range(n):
        size = v.vabs(load_lanes(x, i))
        more = size > most
        most, top = v.select(more, size, most), v.select(more, load_lanes(x, i), top)
    return top


@fn
def divide(x, y):
    """Return x / y, or 0 for lanes with y 0."""
    zero = y == 0.0
    return v.select(zero, v.f32x16(0.0), x / v.select(zero, v.f32x16(1.0), y))


@fn
def ratio(x, y):
    """Return x / y, or 0 for lanes with y <= 0."""
    some = y > 0.0
    return v.select(some, x / v.select(some, y, v.f32x16(1.0)), v.f32x16(0.0))


@fn
def is_zero(top):
    """Return True for lanes with a largest value so small that the group becomes zero."""
    return v.vabs(top) < TINY


@fn
def add_steps(start, step, i):
    """Return start + step * i in single precision."""
    return v.float32(start) + v.float32(step) * v.float32(i)
