"""Loads and stores of every type, partial vectors, conversions of halves, gathers."""

from __future__ import annotations

import numpy as np
import pytest

from ggml_cpu import vocabulary as v
from ggml_cpu.kernel import kernel
from ggml_cpu.target import LANES
from tests.support.native import call
from tests.support.vectors import RNG, SPECIAL, f32, floats, i32, integers, same, to_bf16


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


@kernel()
def one_half_everywhere(p, ith, nth):
    v.store(v.data(p, 0), v.f16_bcast(v.data(p, 1) + 2))
    v.store(v.data(p, 0) + 4 * v.LANES, v.bf16_bcast(v.data(p, 1) + 4))


def test_a_half_in_all_lanes():
    minus = np.float16(-1.25).view(np.uint16)
    source = np.array([7, minus, f32(3.5).view(np.uint32) >> 16], np.uint16)
    out = np.zeros(2 * LANES, f32)
    call(one_half_everywhere, out, source)
    same(out, np.repeat(np.array([-1.25, 3.5], f32), LANES))


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
