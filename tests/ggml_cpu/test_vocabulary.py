"""The vocabulary against NumPy, for this CPU and (in subprocesses) for lesser ones."""

from __future__ import annotations

import math
import os
import platform
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from ggml_cpu import vocabulary as v
from ggml_cpu.kernel import fn, kernel
from ggml_cpu.target import I8_BIAS, LANES, TILE
from tests.native import call

f32, i32 = np.float32, np.int32
RNG = np.random.default_rng(20)
SPECIAL = np.array(
    [0, -0.0, 1, -1, 0.5, 1.5, 2.5, -2.5, np.inf, -np.inf, np.nan, 1e-40, 3e38, -1e-45], f32
)


def floats(n: int) -> np.ndarray:
    """[n, LANES] float32: special values first, then random ones."""
    x = RNG.standard_normal(n * LANES).astype(f32) * 10
    x[: len(SPECIAL)] = SPECIAL[: len(x)]
    return x.reshape(n, LANES)


def integers(dtype, *shape: int) -> np.ndarray:
    """Random integers over the whole range of the type."""
    info = np.iinfo(dtype)
    return RNG.integers(info.min, info.max, shape, dtype, endpoint=True)


def same(got, want, *, what="") -> None:
    np.testing.assert_array_equal(got, want, err_msg=str(what), strict=True)


def words(out: np.ndarray, want: list) -> None:
    """Word w of every vector, out[:, w], against want[w]."""
    assert out.shape[1] == len(want)
    for w, expected in enumerate(want):
        np.testing.assert_array_equal(out[:, w], expected, err_msg=f"word {w}")


@fn
def put(d, w, x):
    """Store the w-th native 32-bit result."""
    v.store(d + w * 4 * v.LANES, x)


# ---- operators


@kernel()
def float_words(p, ith, nth):
    for i in range(v.ne(p, 1, 1)):
        x = v.f32_load(v.data(p, 1) + i * v.nb(p, 1, 1))
        y = v.f32_load(v.data(p, 2) + i * v.nb(p, 2, 1))
        d = v.data(p, 0) + i * v.nb(p, 0, 2)
        put(d, 0, x + y)
        put(d, 1, x - y)
        put(d, 2, x * y)
        put(d, 3, x / y)
        put(d, 4, -x)
        put(d, 5, v.vabs(x))
        put(d, 6, v.vfloor(x))
        put(d, 7, v.vceil(x))
        put(d, 8, v.vtrunc(x))
        put(d, 9, v.vround(x))
        put(d, 10, v.vsqrt(x))
        put(d, 11, v.copysign(x, y))
        put(d, 12, v.vmax(x, y))
        put(d, 13, v.vmin(x, 2.0))
        put(d, 14, v.select(x > y, x, 7.0))
        put(d, 15, v.select((x <= y) | (x != x), 1.0, 0.0))
        put(d, 16, v.select(~(x == y) & (x >= 0.5), 1.0, v.f32(3)))
        put(d, 17, 2 - x)
        x += y
        x *= 2.0
        put(d, 18, x)
        put(d, 19, v.fma(v.f32(3.0), 0.5, 1.0 / v.f32(4.0)))


def test_float_words():
    x, y = floats(16), floats(16)[::-1].copy()
    y[0] = RNG.permutation(np.resize(SPECIAL, LANES))
    out = np.zeros((16, 20, LANES), f32)
    call(float_words, out, x, y)
    with np.errstate(all="ignore"):
        want = [
            x + y, x - y, x * y, x / y, -x, np.abs(x), np.floor(x), np.ceil(x), np.trunc(x),
            np.rint(x), np.sqrt(x), np.copysign(x, y), np.where(x > y, x, y),
            np.where(x < 2, x, f32(2)), np.where(x > y, x, f32(7)),
            (x <= y) | np.isnan(x), np.where((x != y) & (x >= 0.5), f32(1), f32(3)),
            2 - x, (x + y) * 2, np.full_like(x, 1.75),
        ]  # fmt: skip
    words(out, want)


@kernel()
def integer_words(p, ith, nth):
    for i in range(v.ne(p, 1, 1)):
        x = v.i32_load(v.data(p, 1) + i * v.nb(p, 1, 1))
        y = v.i32_load(v.data(p, 2) + i * v.nb(p, 2, 1))
        d = v.data(p, 0) + i * v.nb(p, 0, 2)
        put(d, 0, x + y)
        put(d, 1, x - 3)
        put(d, 2, x * y)
        put(d, 3, x & y)
        put(d, 4, x | 0x55)
        put(d, 5, x ^ y)
        put(d, 6, ~x)
        put(d, 7, x << 3)
        put(d, 8, x >> 5)
        put(d, 9, v.asr(x, 5))
        put(d, 10, v.asr(x, y & 31))
        put(d, 11, v.select(x < y, 1, v.i32(0)))
        put(d, 12, v.vmax(x, y))
        put(d, 13, v.vmin(x, 100))
        put(d, 14, v.vabs(x))
        put(d, 15, -x)
        put(d, 16, v.iota())
        put(d, 17, x & 0xFFFFFFFF)


def test_integer_words():
    x, y = integers(i32, 8, LANES), integers(i32, 8, LANES)
    out = np.zeros((8, 18, LANES), i32)
    call(integer_words, out, x, y)
    with np.errstate(over="ignore"):
        want = [
            x + y, x - i32(3), x * y, x & y, x | 0x55, x ^ y, ~x, x << 3,
            (x.view(np.uint32) >> 5).view(i32), x >> 5, x >> (y & 31), x < y, np.maximum(x, y),
            np.minimum(x, 100), np.abs(x), -x, np.broadcast_to(np.arange(LANES), x.shape), x,
        ]  # fmt: skip
    words(out, want)


# ---- functions


def elementwise(name: str, function):
    """A kernel that applies `function` to rows of any length."""

    @kernel(name=f"test_{name}")
    def apply(p, ith, nth):
        n = v.ne(p, 1, 0)
        for i in range(0, n - n % v.LANES, v.LANES):
            v.store(v.data(p, 0) + 4 * i, function(v.f32_load(v.data(p, 1) + 4 * i)))
        i = n - n % v.LANES
        x = v.f32_load_n(v.data(p, 1) + 4 * i, n - i)
        v.store_n(v.data(p, 0) + 4 * i, function(x), n - i)

    return apply


def ulps(got: np.ndarray, exact: np.ndarray) -> float:
    """The largest error in units of the last place of the correctly rounded result."""
    right = exact.astype(f32)
    finite = np.isfinite(right)
    same(np.isnan(got), np.isnan(right))
    same(got[np.isinf(right)], right[np.isinf(right)])
    unit = np.spacing(np.abs(right[finite])).astype(np.float64)
    return float(np.max(np.abs(got[finite] - exact[finite]) / unit))


def spread(low: float, high: float) -> np.ndarray:
    """Special values and 100,003 numbers over a range."""
    inside = np.linspace(low, high, 100_003, dtype=f32)
    return np.concatenate([SPECIAL, inside])


def magnitudes() -> np.ndarray:
    """Positive numbers of every exponent, subnormal ones too."""
    bits = np.linspace(1, 0x7F7FFFFF, 100_003).astype(np.uint32)
    return np.concatenate([SPECIAL, bits.view(f32)])


@fn
def exp(x):
    return v.vexp(x)


@fn
def log(x):
    return v.vlog(x)


@fn
def log1p(x):
    return v.vlog1p(x)


@fn
def tanh(x):
    return v.vtanh(x)


@fn
def sigmoid(x):
    return v.vsigmoid(x)


@fn
def silu(x):
    return v.vsilu(x)


@fn
def softplus(x):
    return v.vsoftplus(x)


@fn
def gelu(x):
    return v.vgelu(x)


@fn
def gelu_quick(x):
    return v.vgelu_quick(x)


def exact_gelu(x):
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * x * (1 + 0.044715 * x * x)))


FUNCTIONS = {
    "exp": (exp, np.exp, spread(-105, 90), 2),
    "log": (log, np.log, magnitudes(), 2),
    "log1p": (log1p, np.log1p, np.concatenate([spread(-1.5, 30), magnitudes()]), 3),
    "tanh": (tanh, np.tanh, spread(-12, 12), 2),
    "sigmoid": (sigmoid, lambda x: 1 / (1 + np.exp(-x)), spread(-80, 40), 4),
    "silu": (silu, lambda x: x / (1 + np.exp(-x)), spread(-80, 40), 4),
    "softplus": (softplus, lambda x: np.logaddexp(0, x), spread(-80, 40), 5),
}
KERNELS = {name: elementwise(name, row[0]) for name, row in FUNCTIONS.items()}
GELU = {"gelu": elementwise("gelu", gelu), "gelu_quick": elementwise("gelu_quick", gelu_quick)}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_function(name):
    _, reference, x, bound = FUNCTIONS[name]
    out = np.full_like(x, 99)
    call(KERNELS[name], out, x)
    with np.errstate(all="ignore"):
        assert ulps(out, reference(x.astype(np.float64))) <= bound


@pytest.mark.parametrize(
    ("name", "reference"),
    [("gelu", exact_gelu), ("gelu_quick", lambda x: x / (1 + np.exp(-1.702 * x)))],
)
def test_gelu(name, reference):
    x = np.linspace(-12, 12, 50_001, dtype=f32)
    out = np.zeros_like(x)
    call(GELU[name], out, x)
    np.testing.assert_allclose(out, reference(x.astype(np.float64)), rtol=2e-6, atol=2e-7)


@kernel()
def libm(p, ith, nth):
    d = v.data(p, 0)
    for i in range(v.ne(p, 1, 0)):
        x = v.ld_f32(v.data(p, 1) + 4 * i)
        v.st_f32(d, v.expf(x))
        v.st_f32(d + 4, v.logf(x))
        v.st_f32(d + 8, v.sinf(x))
        v.st_f32(d + 12, v.cosf(x))
        v.st_f32(d + 16, v.tanhf(x))
        v.st_f32(d + 20, v.erff(x))
        v.st_f32(d + 24, v.expm1f(x))
        v.st_f32(d + 28, v.log1pf(x))
        v.st_f32(d + 32, v.powf(x, v.float32(1.5)))
        v.st_f32(d + 36, v.sqrtf(x))
        v.st_f32(d + 40, v.rintf(x))
        v.st_f32(d + 44, v.floorf(x))
        d += v.nb(p, 0, 1)


def test_libm():
    x = np.array([0.1, 1, 2.5, 7, 30], f32)
    out = np.zeros((5, 12), f32)
    call(libm, out, x)
    y = x.astype(np.float64)
    erf = np.array([math.erf(float(a)) for a in y])
    want = [
        np.exp(y), np.log(y), np.sin(y), np.cos(y), np.tanh(y), erf, np.expm1(y), np.log1p(y),
        y**1.5, np.sqrt(y), np.rint(y), np.floor(y),
    ]  # fmt: skip
    np.testing.assert_allclose(out, np.stack(want, 1), rtol=3e-7)


# ---- memory


@kernel()
def tails(p, ith, nth):
    """The first n elements of src, copied as f32, f16, bf16, i8, i16, i32; then a whole vector."""
    n = v.extra(p, 0)
    d, x = v.data(p, 0), v.data(p, 1)
    v.store_n(d, v.f32_load_n(x, n), n)
    v.f16_store_n(d + v.nb(p, 0, 1), v.f16_load_n(x, n), n)
    v.bf16_store_n(d + 2 * v.nb(p, 0, 1), v.bf16_load_n(x, n), n)
    v.store_n(d + 3 * v.nb(p, 0, 1), v.i8_load_n(x, n), n)
    v.store_n(d + 4 * v.nb(p, 0, 1), v.i16_load_n(x, n), n)
    v.store_n(d + 5 * v.nb(p, 0, 1), v.i32_load_n(x, n), n)
    v.store(d + 6 * v.nb(p, 0, 1), v.f32_load_n(x, n))


@pytest.mark.parametrize("n", range(LANES + 1))
def test_tails(n):
    sizes = (4, 2, 2, 1, 2, 4)
    source = RNG.integers(1, 60, 4 * LANES, np.uint8)  # no NaN in any reading of it
    out = np.full((7, 4 * LANES), 255, np.uint8)
    call(tails, out, source, extra=[n])
    for row, size in zip(out, sizes, strict=False):
        same(row[: n * size], source[: n * size], what=size)
        assert (row[n * size :] == 255).all()
    same(out[6][: 4 * n], source[: 4 * n])
    assert (out[6][4 * n :] == 0).all()


@kernel()
def half_words(p, ith, nth):
    """f16 -> f32, bf16 -> f32 of src0; f32 -> f16, f32 -> bf16 of src1; vectors and scalars."""
    for i in range(0, v.ne(p, 1, 0), v.LANES):
        x, y = v.data(p, 1) + 2 * i, v.data(p, 2) + 4 * i
        d = v.data(p, 0) + 4 * i
        step = v.nb(p, 0, 1)
        v.store(d, v.f16_load(x))
        v.store(d + step, v.bf16_load(x))
        v.store(d + 2 * step, v.zext_i32(v.f32_to_f16(v.f32_load(y))))
        v.store(d + 3 * step, v.zext_i32(v.f32_to_bf16(v.f32_load(y))))
        for j in range(v.LANES):
            v.st_f32(d + 4 * step + 4 * j, v.ld_f16(x + 2 * j))
            v.st_f32(d + 5 * step + 4 * j, v.ld_bf16(x + 2 * j))
            v.st_i32(d + 6 * step + 4 * j, 0)
            v.st_f16(d + 6 * step + 4 * j, v.ld_f32(y + 4 * j))
            v.st_i32(d + 7 * step + 4 * j, 0)
            v.st_bf16(d + 7 * step + 4 * j, v.ld_f32(y + 4 * j))


def to_bf16(x: np.ndarray) -> np.ndarray:
    bits = x.view(np.uint32).astype(np.uint64)
    rounded = (bits + 0x7FFF + (bits >> 16 & 1)) >> 16
    return np.where(np.isnan(x), bits >> 16 | 64, rounded).astype(np.uint16)


def test_halves():
    raw = np.arange(65536, dtype=np.uint16)
    numbers = integers(np.int32, 65536).view(f32)
    ties = raw[:30000].view(np.float16).astype(f32)
    numbers[:29999] = (ties[:-1] + ties[1:]) / 2
    numbers[30000 : 30000 + len(SPECIAL)] = SPECIAL
    out = np.zeros((8, 65536), f32)
    call(half_words, out, raw, numbers)
    with np.errstate(all="ignore"):
        halves = numbers.astype(np.float16)
    for row in (out[0], out[4]):
        same(row, raw.view(np.float16).astype(f32))
    for row in (out[1], out[5]):
        same(row, (raw.astype(np.uint32) << 16).view(f32))
    for row in (out[2], out[6]):
        same(row.view(np.uint32).astype(np.uint16).view(np.float16), halves)
    for row in (out[3], out[7]):
        same(row.view(np.uint32), to_bf16(numbers).astype(np.uint32))


@kernel()
def scalar_words(p, ith, nth):
    x, d = v.data(p, 1), v.data(p, 0)
    v.st_i64(d, v.ld_i8(x))
    v.st_i64(d + 8, v.ld_u8(x))
    v.st_i64(d + 16, v.ld_i16(x))
    v.st_i64(d + 24, v.ld_u16(x))
    v.st_i64(d + 32, v.ld_i32(x))
    v.st_i64(d + 40, v.ld_u32(x))
    v.st_i64(d + 48, v.ld_i64(x))
    v.st_i64(d + 56, v.bits_of_f32(v.f32_of_bits(-5)))
    v.st_f64(d + 64, v.ld_f64(x))
    v.st_i8(d + 72, -1)
    v.st_i16(d + 74, 0x12345)
    v.st_i32(d + 76, 7)
    v.st_f32(d + 80, 1.5)
    v.st_i64(d + 88, v.atomic_add(x, 3) + v.atomic_load(x))


def test_scalar_words():
    source = np.array([-3, -3], np.int64)
    out = np.zeros(12, np.int64)
    call(scalar_words, out, source)
    same(out[:8], np.array([-3, 253, -3, 65533, -3, 2**32 - 3, -3, -5]))
    assert out[8:9].view(np.float64).view(np.int64)[0] == -3
    raw = out[9:].view(np.uint8)
    assert raw[0] == 255 and raw[2:4].view(np.uint16)[0] == 0x2345 and raw[4] == 7
    assert raw[8:12].view(f32)[0] == 1.5
    assert source[0] == 0 and out[11] == -3


@kernel()
def gathers(p, ith, nth):
    index = v.i32_load(v.data(p, 2))
    v.store(v.data(p, 0), v.f32_gather(v.data(p, 1), index))
    v.store(v.data(p, 0) + 4 * v.LANES, v.f32_bcast(v.data(p, 1) + 4))
    v.store(v.data(p, 0) + 8 * v.LANES, v.i64_gather(v.data(p, 1), index))


def test_gathers():
    table, index = floats(16).ravel(), RNG.integers(0, 32, LANES).astype(i32)
    out = np.zeros(4 * LANES, f32)
    call(gathers, out, table, index)
    same(out[:LANES], table[index])
    same(out[LANES : 2 * LANES], np.full(LANES, table[1]))
    same(out[2 * LANES :].view(np.int64), table.view(np.int64)[index])


SQUARES = (np.arange(300) ** 2).astype(i32).tobytes()


@kernel()
def table_words(p, ith, nth):
    for i in range(v.ne(p, 1, 0)):
        x = v.ld_i32(v.data(p, 1) + 4 * i)
        v.st_i32(v.data(p, 0) + 4 * i, v.ld_i32(v.table(SQUARES) + 4 * x))


def test_table():
    x = RNG.permutation(300).astype(i32)
    out = np.zeros_like(x)
    call(table_words, out, x)
    same(out, x * x)


# ---- lanes and conversions


@kernel()
def lane_words(p, ith, nth):
    x, y = v.i32x8_load(v.data(p, 1)), v.i32x8_load(v.data(p, 1) + 32)
    d = v.data(p, 0)
    v.store(d, v.concat(v.low(x), v.high(x)))
    v.store(d + 32, v.concat(v.even(x), v.odd(x)))
    v.store(d + 64, v.reverse(x))
    v.store(d + 96, v.swap_pairs(x))
    v.store(d + 128, v.rotate(x, 3))
    v.store(d + 160, v.zip_low(x, y))
    v.store(d + 192, v.zip_high(x, y))
    v.store(d + 224, v.evens(x, y))
    v.store(d + 256, v.odds(x, y))
    v.store(d + 288, v.repeat_each(v.quarter(x, 1), 4))
    v.store(d + 320, v.repeat_all(v.quarter(x, 3), 4))
    v.store(d + 352, v.shuffle(x, 7, 0, 1, 1, 2, 5, 4, 4))
    v.store(d + 384, v.set_lane(v.set_lane(x, 2, 77), 5, v.lane(x, 0)))
    v.store(d + 416, v.concat(v.i32x4(v.lane(x, 7)), v.i32x4(1)))


def test_lanes():
    x = integers(i32, 16)
    a, b = x[:8], x[8:]
    out = np.zeros((14, 8), i32)
    call(lane_words, out, x)
    changed = a.copy()
    changed[2], changed[5] = 77, a[0]
    want = [
        a, np.r_[a[::2], a[1::2]], a[::-1], a.reshape(4, 2)[:, ::-1].ravel(), np.roll(a, -3),
        np.stack([a[:4], b[:4]], 1).ravel(), np.stack([a[4:], b[4:]], 1).ravel(),
        np.r_[a[::2], b[::2]], np.r_[a[1::2], b[1::2]], np.repeat(a[2:4], 4), np.tile(a[6:], 4),
        a[[7, 0, 1, 1, 2, 5, 4, 4]], changed, np.r_[[a[7]] * 4, [1] * 4],
    ]  # fmt: skip
    for row, (got, expected) in enumerate(zip(out, want, strict=True)):
        same(got, expected.astype(i32), what=row)


@kernel()
def conversions(p, ith, nth):
    d, x = v.data(p, 0), v.data(p, 1)
    b, f = v.i8x16_load(x), v.f32x16_load(v.data(p, 2))
    v.store(d, v.to_i32(b))
    v.store(d + 64, v.zext_i32(b))
    v.store(d + 128, v.to_f32(v.to_i32(b)))
    v.store(d + 192, v.to_i32(f))
    v.store(d + 256, v.to_f32(v.to_f64(f) * 0.5))
    v.store(d + 320, v.to_i8(v.to_i32(f)))
    v.store(d + 336, v.to_i16(v.to_i32(f)))
    v.store(d + 368, v.as_i8(v.as_i32(b)))


def test_conversions():
    b, f = integers(np.int8, 16), (RNG.standard_normal(16) * 1000).astype(f32)
    out = np.zeros(384, np.uint8)
    call(conversions, out, b, f)
    want = [
        b.astype(i32), b.view(np.uint8).astype(i32), b.astype(f32), f.astype(i32), f / 2,
        f.astype(i32).astype(np.int8), f.astype(i32).astype(np.int16), b,
    ]  # fmt: skip
    same(out, np.concatenate([a.view(np.uint8) for a in want]))


@kernel()
def reductions(p, ith, nth):
    x, d = v.f32_load(v.data(p, 1)), v.data(p, 0)
    n = v.i32_load(v.data(p, 2))
    v.st_f64(d, v.vsum(x))
    v.st_f64(d + 8, v.vsum64(x))
    v.st_f64(d + 16, v.vmaxval(x))
    v.st_f64(d + 24, v.vminval(x))
    v.st_f64(d + 32, v.vsum(n >> 8))
    v.st_f64(d + 40, v.vmaxval(n))
    v.st_f64(d + 48, v.vminval(n))
    v.st_f64(d + 56, 1.0 if v.vany(x > 5.0) else 0.0)
    v.st_f64(d + 64, 1.0 if v.vall(x > 5.0) else 0.0)
    v.st_f64(d + 72, v.vsum(v.to_f64(x)))


def test_reductions():
    x, n = RNG.standard_normal(LANES).astype(f32), integers(i32, LANES)
    x[1] = 6
    n_shifted = n.view(np.uint32) >> 8
    out = np.zeros(10)
    call(reductions, out, x, n)
    exact = x.astype(np.float64).sum()
    want = [exact, exact, x.max(), x.min(), n_shifted.sum(), n.max(), n.min(), 1, 0, exact]
    np.testing.assert_allclose(out[:1], want[:1], rtol=1e-5)
    np.testing.assert_allclose(out[1:], want[1:], rtol=1e-14)


def test_sum_keeps_nan():
    x = np.full(LANES, 1, f32)
    x[-1] = np.nan
    out = np.zeros(10)
    call(reductions, out, x, np.zeros(LANES, i32))
    assert np.isnan(out[0]) and np.isnan(out[1])


# ---- dot products


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
def lookups(p, ith, nth):
    table = v.i8x16_load(v.data(p, 1))
    v.store(v.data(p, 0), v.lookup16(table, v.i8x16_load(v.data(p, 2))))
    v.store(v.data(p, 0) + 16, v.lookup16(table, v.i8x64_load(v.data(p, 2) + 16)))


def test_lookup16():
    table, index = integers(np.int8, 16), RNG.integers(0, 16, 80).astype(np.int8)
    out = np.zeros(80, np.int8)
    call(lookups, out, table, index)
    same(out, table[index])


# ---- tiles, block, work


@kernel()
def tile_words(p, ith, nth):
    """Running sums in a TILE tile, and of the first two rows in a pair."""
    total, pair = v.f32_tile(), v.f32_regs(2)
    for _ in range(v.extra(p, 0)):
        for t in range(v.TILE):
            total[t] = total[t] + v.f32_load(v.data(p, 1) + t * v.nb(p, 1, 1))
        for t in range(2):
            pair[t] = pair[t] + total[t]
    for t in range(v.TILE):
        v.store(v.data(p, 0) + t * v.nb(p, 0, 1), total[t])
    for t in range(2):
        v.store(v.data(p, 0) + (v.TILE + t) * v.nb(p, 0, 1), pair[t])


def test_tiles():
    x = RNG.integers(0, 9, (TILE, LANES)).astype(f32)
    out = np.zeros((TILE + 2, LANES), f32)
    call(tile_words, out, x, extra=[3])
    same(out, np.concatenate([3 * x, 6 * x[:2]]))


@kernel()
def transposed(p, ith, nth):
    tile = v.f32_regs(LANES)
    for t in range(v.LANES):
        tile[t] = v.f32_load(v.data(p, 1) + t * v.nb(p, 1, 1))
    v.transpose(tile)
    for t in range(v.LANES):
        v.store(v.data(p, 0) + t * v.nb(p, 0, 1), tile[t])


def test_transpose():
    x = floats(LANES)
    out = np.zeros_like(x)
    call(transposed, out, x)
    same(out, x.T)


@kernel()
def block_words(p, ith, nth):
    d = v.data(p, 0) + ith * v.nb(p, 0, 1)
    for i in range(4):
        v.st_i64(d + 8 * i, v.ne(p, 1, i))
        v.st_i64(d + 32 + 8 * i, v.nb(p, 1, i))
    v.st_i64(d + 64, v.op_i32(p, 1))
    v.st_f64(d + 72, v.op_f32(p, 0))
    v.st_i64(d + 80, v.extra(p, 7))
    v.st_i64(d + 88, v.data(p, 2))
    v.st_i64(d + 96, v.local(p, ith) - v.shared(p))
    start, stop = v.split(v.extra(p, 0), ith, nth)
    v.st_i64(d + 104, start)
    v.st_i64(d + 112, stop)
    start, stop = v.split_by(v.extra(p, 0), 16, ith, nth)
    v.st_i64(d + 120, start)
    v.st_i64(d + 128, stop)


def test_block():
    x = np.zeros((2, 3, 5), f32)
    out = np.zeros((3, 17), np.int64)
    params = np.array([1.5], f32).tobytes() + np.array([-9], i32).tobytes()
    call(block_words, out, x, op_params=params, extra=[100, *range(7)], scratch=(64, 128), nth=3)
    for ith, row in enumerate(out):
        same(row[:9], np.array([5, 3, 2, 1, 4, 20, 60, 120, -9]))
        assert row[9:10].view(np.float64)[0] == 1.5
        same(row[10:13], np.array([6, 0, 64 + 128 * ith]))
    same(out[:, 13:15], np.array([[0, 33], [33, 66], [66, 100]]))
    same(out[:, 15:17], np.array([[0, 32], [32, 64], [64, 100]]))


# ---- the same tests for lesser CPUs

AVX2 = "+sse2,+ssse3,+sse4.1,+sse4.2,+avx,+avx2,+fma,+f16c,+bmi,+bmi2,+lzcnt,+movbe,+popcnt"
TARGETS = {"haswell": AVX2, "x86-64": "+sse2"}


@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="x86 only")
@pytest.mark.skipif("NUMBA_CPU_NAME" in os.environ, reason="already a chosen CPU")
@pytest.mark.parametrize("name", TARGETS)
def test_other_cpu(name):
    environment = {**os.environ, "NUMBA_CPU_NAME": name, "NUMBA_CPU_FEATURES": TARGETS[name]}
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", __file__],
        env=environment,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert run.returncode == 0, run.stdout + run.stderr


NEON = """
import llvmlite.binding as llvm
from ggml_cpu import target

settings = dict(
    X86=False, ARM64=True, NEON_DOT=True, FMA=True, HALF=True, AVX512=False, AVX2=False, VNNI=False,
    BF16=False, LANES=4, TILE=8, I8_BIAS=0, CPU_NAME="neoverse-n1", TRIPLE="aarch64-linux-gnu",
    FEATURES={"neon": True, "dotprod": True, "fullfp16": True},
)
for name, value in settings.items():
    setattr(target, name, value)
llvm.initialize_all_targets()
llvm.initialize_all_asmprinters()
from ggml_cpu.codegen import assembly
from tests.ggml_cpu import test_vocabulary as words

for kernel, wanted in ((words.dots, "sdot"), (words.half_words, "fcvtl"), (words.lookups, "tbl"),
                       (words.KERNELS["exp"], "fmla")):
    code = assembly(kernel)
    assert wanted in code and "\\tbl\\t" not in code, code  # bl: a call of something outside
"""


@pytest.mark.skipif("NUMBA_CPU_NAME" in os.environ, reason="already a chosen CPU")
def test_arm_code():
    """Compiled for ARM (not run): the instructions are there, and nothing calls a library."""
    root = Path(__file__).parents[2]
    run = subprocess.run(
        [sys.executable, "-c", NEON], cwd=root, capture_output=True, text=True, timeout=600
    )
    assert run.returncode == 0, run.stderr
