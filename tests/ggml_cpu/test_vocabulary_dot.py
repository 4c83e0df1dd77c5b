"""Dot products and byte lookups: exact, extreme values included."""

from __future__ import annotations

import numpy as np
import pytest

from ggml_cpu import vocabulary as v
from ggml_cpu.kernel import kernel
from ggml_cpu.target import I8_BIAS, LANES
from tests.support.native import call
from tests.support.vectors import RNG, f32, i32, integers, put, same, to_bf16


@kernel()
def dots(p, ith, nth):
    """src0 i8 weights, src1 i8 activations, src2 i32 accumulators; native and 4-lane forms."""
    for i in range(v.ne(p, 1, 1)):
        w, a = v.data(p, 1) + i * v.nb(p, 1, 1), v.data(p, 2) + i * v.nb(p, 2, 1)
        acc = v.i32_load(v.data(p, 3) + i * v.nb(p, 3, 1))
        d = v.data(p, 0) + i * v.nb(p, 0, 2)
        x, y = v.i8_load(w), v.i8_load(a)
        put(d, 0, v.dot4(acc, x & 127, y))
        put(d, 1, v.dot4_i8(acc, x, y))
        put(d, 2, v.dot4_biased(acc, x ^ v.I8_BIAS, y))
        put(d, 3, v.dot2(acc, v.i16_load(w), v.i16_load(a)))
        put(d, 4, v.i32(0))
        small = v.dot4_i8(v.i32x4_load(v.data(p, 3)), v.i8x16_load(w), v.i8x16_load(a))
        v.store(d + 16 * v.LANES, small)


@pytest.mark.parametrize("extreme", [False, True])
def test_dots(extreme):
    w, a = integers(np.int8, 50, 4 * LANES), np.maximum(integers(np.int8, 50, 4 * LANES), -127)
    if extreme:
        w = np.where(w > 0, 127, -128).astype(np.int8)
        a = np.where(a > 0, 127, -127).astype(np.int8)
    acc = RNG.integers(-(2**20), 2**20, (50, LANES)).astype(i32)
    out = np.zeros((50, 5, LANES), i32)
    call(dots, out, w, a, acc)

    def sums(x, y, k):
        return acc + (x.astype(np.int64) * y).reshape(50, LANES, k).sum(2)

    same(out[:, 0], sums(w & 127, a, 4).astype(i32))
    same(out[:, 1], sums(w, a, 4).astype(i32))
    bias = I8_BIAS * a.astype(np.int64).reshape(50, LANES, 4).sum(2)
    same(out[:, 2], (sums(w, a, 4) + bias).astype(i32))
    with np.errstate(over="ignore"):
        same(out[:, 3], sums(w.view(np.int16), a.view(np.int16), 2).astype(i32))
    same(out[:, 4, :4], (sums(w, a, 4) - acc + acc[0])[:, :4].astype(i32))


@kernel()
def pairs(p, ith, nth):
    x, y = v.i8_load(v.data(p, 1)), v.i8_load(v.data(p, 2))
    v.store(v.data(p, 0), v.dot_pairs(v.i16_load(v.data(p, 3)), x & 127, y))


@pytest.mark.parametrize("extreme", [False, True])
def test_dot_pairs(extreme):
    x, y = integers(np.int8, 4 * LANES), np.maximum(integers(np.int8, 4 * LANES), -127)
    if extreme:
        x, y = np.full_like(x, 127), np.where(y > 0, 127, -127).astype(np.int8)
    acc, out = RNG.integers(-500, 500, 2 * LANES).astype(np.int16), np.zeros(2 * LANES, np.int16)
    call(pairs, out, x, y, acc)
    products = (x & 127).astype(np.int16) * y
    same(out, (acc + products[::2] + products[1::2]).astype(np.int16))


@kernel()
def squares(p, ith, nth):
    x, y = v.i8x16_load(v.data(p, 1)), v.i8x16_load(v.data(p, 2))
    v.store(v.data(p, 0), v.matrix_dot(v.i32x4_load(v.data(p, 3)), x, y))


def test_matrix_dot():
    x, y = integers(np.int8, 2, 8), np.maximum(integers(np.int8, 2, 8), -127)
    acc, out = integers(i32, 2, 2) >> 8, np.zeros((2, 2), i32)
    call(squares, out, x, y, acc)
    same(out, acc + x.astype(i32) @ y.astype(i32).T)


@kernel()
def bf16_dot(p, ith, nth):
    acc = v.f32_load(v.data(p, 3))
    v.store(v.data(p, 0), v.dotbf16(acc, v.i16_load(v.data(p, 1)), v.i16_load(v.data(p, 2))))


def test_dotbf16():
    x, y = (to_bf16(RNG.standard_normal(2 * LANES).astype(f32)) for _ in range(2))
    acc, out = np.ones(LANES, f32), np.zeros(LANES, f32)
    call(bf16_dot, out, x, y, acc)
    a, b = ((q.astype(np.uint32) << 16).view(f32).astype(np.float64) for q in (x, y))
    np.testing.assert_allclose(out, 1 + (a * b).reshape(-1, 2).sum(1), rtol=1e-5, atol=1e-6)


@kernel()
def bf16_squares(p, ith, nth):
    x, y = v.i16x8_load(v.data(p, 1)), v.i16x8_load(v.data(p, 2))
    v.store(v.data(p, 0), v.matrix_dotbf16(v.f32x4_load(v.data(p, 3)), x, y))


def test_matrix_dotbf16():
    x, y = (to_bf16(RNG.standard_normal((2, 4)).astype(f32)) for _ in range(2))
    acc, out = RNG.standard_normal((2, 2)).astype(f32), np.zeros((2, 2), f32)
    call(bf16_squares, out, x, y, acc)
    a, b = ((q.astype(np.uint32) << 16).view(f32).astype(np.float64) for q in (x, y))
    np.testing.assert_allclose(out, acc + a @ b.T, rtol=1e-5, atol=1e-5)


@kernel()
def lookups(p, ith, nth):
    table = v.i8x16_load(v.data(p, 1))
    v.store(v.data(p, 0), v.lookup16(table, v.i8x16_load(v.data(p, 2))))
    v.store(v.data(p, 0) + 16, v.lookup16(table, v.i8x64_load(v.data(p, 2) + 16)))


def test_lookup16():
    table, index = integers(np.int8, 16), RNG.integers(0, 16, 80).astype(np.int8)
    out = np.zeros(80, np.int8)
    call(lookups, out, table, index)
    same(out, table[index])
