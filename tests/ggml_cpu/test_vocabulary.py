"""The vocabulary's operators, lanes, reductions, tiles and block, against NumPy; and all of it for
other CPUs than this one, in subprocesses.
"""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from ggml_cpu import target
from ggml_cpu import vocabulary as v
from ggml_cpu.kernel import kernel
from ggml_cpu.target import LANES, TILE
from tests.support.limits import SECONDS
from tests.support.native import call
from tests.support.vectors import RNG, SPECIAL, f32, floats, i32, integers, put, same, words

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
            x + y,
            x - y,
            x * y,
            x / y,
            -x,
            np.abs(x),
            np.floor(x),
            np.ceil(x),
            np.trunc(x),
            np.rint(x),
            np.sqrt(x),
            np.copysign(x, y),
            np.where(x > y, x, y),
            np.where(x < 2, x, f32(2)),
            np.where(x > y, x, f32(7)),
            (x <= y) | np.isnan(x),
            np.where((x != y) & (x >= 0.5), f32(1), f32(3)),
            2 - x,
            (x + y) * 2,
            np.full_like(x, 1.75),
        ]
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
            x + y,
            x - i32(3),
            x * y,
            x & y,
            x | 0x55,
            x ^ y,
            ~x,
            x << 3,
            (x.view(np.uint32) >> 5).view(i32),
            x >> 5,
            x >> (y & 31),
            x < y,
            np.maximum(x, y),
            np.minimum(x, 100),
            np.abs(x),
            -x,
            np.broadcast_to(np.arange(LANES), x.shape),
            x,
        ]
    words(out, want)


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
    z = v.i32x8_load(v.data(p, 1) + 64)
    v.store(d + 448, v.every_third(x, y, z, 0))
    v.store(d + 480, v.every_third(x, y, z, 2))
    v.store(d + 512, v.mix_thirds(x, y, z, 0))
    v.store(d + 544, v.mix_thirds(x, y, z, 1))
    v.store(d + 576, v.mix_thirds(x, y, z, 2))


def test_lanes():
    x = integers(i32, 24)
    a, b = x[:8], x[8:16]
    out = np.zeros((19, 8), i32)
    call(lane_words, out, x)
    changed = a.copy()
    changed[2], changed[5] = 77, a[0]
    want = [
        a,
        np.r_[a[::2], a[1::2]],
        a[::-1],
        a.reshape(4, 2)[:, ::-1].ravel(),
        np.roll(a, -3),
        np.stack([a[:4], b[:4]], 1).ravel(),
        np.stack([a[4:], b[4:]], 1).ravel(),
        np.r_[a[::2], b[::2]],
        np.r_[a[1::2], b[1::2]],
        np.repeat(a[2:4], 4),
        np.tile(a[6:], 4),
        a[[7, 0, 1, 1, 2, 5, 4, 4]],
        changed,
        np.r_[[a[7]] * 4, [1] * 4],
        x[::3],
        x[2::3],
        *x.reshape(3, 8).T.reshape(3, 8),
    ]
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
    v.st_f64(d + 80, v.vbits(x > 5.0))
    v.st_f64(d + 88, v.lowest_bit(v.vbits(x == 6.0)))


def test_reductions():
    x, n = RNG.standard_normal(LANES).astype(f32), integers(i32, LANES)
    x[1], x[-1] = 6, 7
    n_shifted = n.view(np.uint32) >> 8
    out = np.zeros(12)
    call(reductions, out, x, n)
    exact = x.astype(np.float64).sum()
    want = [exact, exact, x.max(), x.min(), n_shifted.sum(), n.max(), n.min(), 1, 0, exact,
            2 + 2 ** (LANES - 1), 1]  # fmt: skip
    np.testing.assert_allclose(out[:1], want[:1], rtol=1e-5)
    np.testing.assert_allclose(out[1:], want[1:], rtol=1e-14)


def test_sum_keeps_nan():
    x = np.full(LANES, 1, f32)
    x[-1] = np.nan
    out = np.zeros(12)
    call(reductions, out, x, np.zeros(LANES, i32))
    assert np.isnan(out[0]) and np.isnan(out[1])


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
    start, stop = v.split_aligned(v.extra(p, 0), 16, ith, nth)
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

TARGETS = ("sse2", "sse4.2", "avx2", "avx512")


@pytest.mark.slow
@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="x86 only")
@pytest.mark.skipif("LLAMA_PY_CPU" in os.environ, reason="already a chosen CPU")
@pytest.mark.parametrize("name", TARGETS)
def test_other_cpu(name):
    if name not in target.usable(target.host_features()):
        pytest.skip(f"this machine is no {name}")
    environment = {**os.environ, "LLAMA_PY_CPU": name}
    files = sorted(Path(__file__).parent.glob("test_vocabulary*.py"))
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *files],
        env=environment,
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )
    assert run.returncode == 0, run.stdout + run.stderr


NEON = """
from tests.support.foreign import become

become("neon-dotprod")
from ggml_cpu.codegen import assembly
from tests.ggml_cpu.test_vocabulary_dot import dots, lookups
from tests.ggml_cpu.test_vocabulary_functions import KERNELS
from tests.ggml_cpu.test_vocabulary_memory import half_words

expected = {dots: "sdot", lookups: "tbl", half_words: "fcvtl", KERNELS["exp"]: "fmla"}
for kernel, wanted in expected.items():
    code = assembly(kernel)
    assert wanted in code and "\\tbl\\t" not in code, code  # bl: a call of something outside
"""


@pytest.mark.skipif("LLAMA_PY_CPU" in os.environ, reason="already a chosen CPU")
def test_arm_code():
    """Compiled for ARM (not run): the instructions are there, and nothing calls a library."""
    root = Path(__file__).parents[2]
    run = subprocess.run(
        [sys.executable, "-c", NEON], cwd=root, capture_output=True, text=True, timeout=SECONDS
    )
    assert run.returncode == 0, run.stderr
