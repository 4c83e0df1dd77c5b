"""MUL_MAT: every weight type and layout, odd sizes, strides and broadcasts.

Expected values are float64 products of the weights' own values with activations rounded in NumPy
as the type asks for: what is left is the order of additions.
"""

from __future__ import annotations

import numpy as np
import pytest

from ggml_cpu.blocks import amx_pairs
from ggml_cpu.blocks.format import LAYOUT
from ggml_cpu.blocks.integers16 import SHARED
from ggml_cpu.blocks.tiles import GRAIN, WIDTHS, find_tile, pad_columns, tile_width
from ggml_cpu.quants import weights
from ggml_cpu.target import AMX, VNNI
from ggml_py import ops
from ggml_py.errors import UnsupportedOp
from tests.support.products import (
    TABLE,
    Run,
    error,
    layouts,
    leaf,
    multiplied,
    repacked,
    rounded,
    values,
)

TYPES = ("f32", "f16", "bf16", "q8_0", "q4_0", "q2_K", "q3_K", "q4_K", "q5_K", "q6_K")
FLOATS = TYPES[:3]
MANY = 67  # columns for which rows of floats, too, become panels
EXACT = 1e-11
finely = pytest.mark.skipif(not VNNI, reason="this CPU multiplies f16 in f32")


def random(*shape: int) -> np.ndarray:
    seed = np.random.SeedSequence(shape)
    return np.random.default_rng(seed).standard_normal(shape, np.float32)


def many(kind: str) -> list[int]:
    """Numbers of columns for which the rows of a type become other panels, if there are any."""
    return [MANY] if kind in FLOATS else [amx_pairs.MANY + 3] if AMX else []


def product(a, b, layout: str = "") -> np.ndarray:
    """What MUL_MAT(a, b) should give, [ne3, ne2, n, m]."""
    n = b.ne[1] * b.ne[2] if a.ne[2] == 1 else b.ne[1]
    w, x = multiplied(a, b, not layout and n <= weights()[a.type.name].few, n)
    repeats = [x.shape[0] // w.shape[0], x.shape[1] // w.shape[1]]
    return x @ w.repeat(repeats[0], 0).repeat(repeats[1], 1).swapaxes(2, 3)


def check(a, b, n_threads: int = 2, layout: str = "") -> None:
    expected = product(a, b, layout)
    weight = repacked(a) if layout else a
    assert weight.layout == layout
    run = Run(ops.mul_mat(weight, b), n_threads)
    assert error(run(), expected) < EXACT, f"{run.kernel.name} on {n_threads} threads"


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("m", [1, 3, 16, 17, 100])
def test_sizes(kind: str, m: int) -> None:
    k = {1: 256, 3: 512, 16: 768, 17: 1280, 100: 256}[m]
    a = leaf(kind, random(m, k))
    for n in (1, 2, 3, 8, 9, 13, 25, *many(kind)):
        for layout in layouts(kind):
            check(a, leaf("f32", random(n, k)), 1 + n % 3, layout)


@pytest.mark.parametrize("kind", ("q8_0", "q4_0"))
def test_odd_number_of_blocks(kind: str) -> None:
    """k a multiple of 32, but not of 64 or of 256."""
    for k in (32, 96, 288):
        a = leaf(kind, random(21, k))
        for n in (1, 2, 7):
            check(a, leaf("f32", random(n, k)), layout="")
            check(a, leaf("f32", random(n, k)), layout=LAYOUT)


@pytest.mark.parametrize("kind", FLOATS)
@pytest.mark.parametrize("k", [1, 2, 5, 15, 33, 127, 1027, 1700])
def test_any_k(kind: str, k: int) -> None:
    """The end of the last row is the end of the memory: nothing past it may count."""
    a = leaf(kind, random(19, k))
    for n in (1, 4, 5, MANY):
        for layout in layouts(kind):
            check(a, leaf("f32", random(n, k)), layout=layout)


@pytest.mark.parametrize("kind", TYPES)
def test_broadcast_of_matrices(kind: str) -> None:
    for layout in layouts(kind):
        a = leaf(kind, random(2, 3, 37, 256))
        for n in (1, 6, *many(kind)):
            check(a, leaf("f32", random(4, 6, n, 256)), 2, layout)


@pytest.mark.parametrize("kind", TYPES)
def test_matrices_of_one_weight_are_columns_of_one_product(kind: str) -> None:
    """One token of each of 13 sequences costs what 13 tokens of one do, and gives the same."""
    a = leaf(kind, random(37, 256))
    for layout in layouts(kind):
        weight = repacked(a) if layout else a
        for n, b2 in ((1, 13), (3, 5), (1, MANY), (2, 40)):
            x = random(n * b2, 256)
            one = Run(ops.mul_mat(weight, leaf("f32", x)))
            several = Run(ops.mul_mat(weight, leaf("f32", x.reshape(b2, n, 256))))
            assert several.kernel is one.kernel
            assert (several().reshape(one().shape) == one()).all()
        check(a, leaf("f32", random(2, 5, 3, 256)), 2, layout)


@pytest.mark.parametrize("kind", ("f32", "f16", "bf16"))
def test_strided_weights(kind: str) -> None:
    """Heads of a cache: rows of one head lie apart, as do the heads; and a window of rows."""
    cache = leaf(kind, random(50, 4, 64))  # [head_dim, head, cell]
    heads = ops.permute(ops.view(cache, (64, 4, 29), (64, 256), 256 * 3), 0, 2, 1, 3)
    for n in (1, 3, 9, MANY):
        check(heads, leaf("f32", random(8, n, 64)), 3)


@pytest.mark.parametrize("kind", ("q8_0", "q4_0"))
def test_strided_quantized_weights(kind: str) -> None:
    cache = leaf(kind, random(50, 4, 64))
    heads = ops.permute(ops.view(cache, (64, 4, 29), (64, 256), 256 * 3), 0, 2, 1, 3)
    for n in (1, 3, 9):
        check(heads, leaf("f32", random(8, n, 64)), 3)


@pytest.mark.parametrize("kind", ("f32", "q8_0", "q4_K"))
def test_strided_activations(kind: str) -> None:
    a = leaf(kind, random(40, 256))
    permuted = ops.permute(leaf("f32", random(7, 3, 256)), 0, 2, 1, 3)
    check(a, permuted)
    wide = leaf("f32", random(9, 300))
    check(a, ops.view(wide, (256, 9), (300,), 11))
    check(a, ops.view(wide, (256, 2), (300,), 11))
    columns = ops.transpose(leaf("f32", random(256, 5)))
    check(a, columns)


@pytest.mark.parametrize("kind", ("f32", "f16", "bf16", "q4_0"))
@pytest.mark.parametrize("source", ("f16", "bf16"))
def test_16_bit_activations(kind: str, source: str) -> None:
    a = leaf(kind, random(33, 96))
    for n in (1, 6):
        check(a, leaf(source, random(n, 96)))


@pytest.mark.parametrize("kind", ("f32", "q4_K"))
def test_few_rows_many_columns(kind: str) -> None:
    """Fewer panels than threads: columns are divided too."""
    check(leaf(kind, random(5, 256)), leaf("f32", random(MANY, 256)), 3)


def test_more_panels_than_a_group_and_more_steps_than_a_block() -> None:
    check(leaf("f32", random(700, 1100)), leaf("f32", random(MANY, 1100)), 2)
    check(leaf("q8_0", random(300, 4096)), leaf("f32", random(13, 4096)), 2)
    for k in (1600, 1601, 3300):
        check(leaf("f16", random(100, k)), leaf("f32", random(MANY, k)), 2)


@pytest.mark.parametrize("kind", ("q8_0", "q2_K", "q3_K", "q6_K"))
def test_zero_and_tiny_activations(kind: str) -> None:
    x = random(9, 512)
    x[0] = 0
    x[1, :256] = 0
    x[2] *= 1e-30
    a = leaf(kind, random(20, 512))
    check(a, leaf("f32", x))
    result = Run(ops.mul_mat(a, leaf("f32", x[:1])))()
    assert (result == 0).all()


@pytest.mark.parametrize("kind", TYPES)
def test_threads_do_not_change_the_result(kind: str) -> None:
    for n in (15, MANY):
        a, b = leaf(kind, random(83, 256)), leaf("f32", random(n, 256))
        results = [Run(ops.mul_mat(a, b), n)() for n in (1, 2, 3)]
        assert all((r == results[0]).all() for r in results)


@pytest.mark.parametrize("n", [1, 3, 12])
def test_prepared_activations_serve_the_next_weight(n: int) -> None:
    """q, k, v: the second product may skip preparing if it reads the same operand."""
    b = leaf("f32", random(n, 512))
    weight = leaf("q6_K", random(33, 512))
    first = Run(ops.mul_mat(repacked(leaf("q4_K", random(48, 512))), b))
    second = Run(ops.mul_mat(repacked(weight), b))
    assert first.kernel.prepare == second.kernel.prepare
    assert all(k.reads == (2,) for k in first.kernel.prepare)
    expected = second()
    first()
    size = first.kernel.scratch(first.node, 2)[0]
    assert size == second.kernel.scratch(second.node, 2)[0]
    assert (first.scratch[:size] == second.scratch[:size]).all()
    assert error(expected, product(weight, b)) < EXACT


def test_refusals_say_what_is_missing() -> None:
    b = leaf("f32", random(2, 256))
    unknown = leaf("q8_1", random(4, 256))
    why = TABLE.why_not(ops.mul_mat(unknown, b))
    assert "needs bf16 weights" in why and "got q8_1" in why
    ids = leaf("i32", random(2, 256))
    assert "needs f32, f16 or bf16 activations" in TABLE.why_not(
        ops.mul_mat(leaf("q8_0", random(4, 256)), ids)
    )
    apart = ops.permute(leaf("f32", random(16, 8, 2)), 2, 0, 1, 3)
    with pytest.raises(UnsupportedOp, match="adjacent elements"):
        TABLE.get(ops.mul_mat(apart, leaf("f32", random(2, 3, 8))))


def test_tiles_cover_every_column_once() -> None:
    for n in range(1, 100):
        c, places = 0, 0
        while c < n:
            width = tile_width(n - c)
            assert width in WIDTHS
            for i in range(c, min(n, c + width)):
                assert find_tile(i, n) == (c, width)
            c += width
            places += width
        assert n <= places <= pad_columns(n) < n + GRAIN


def some(kind: str, *shape: int) -> np.ndarray:
    """Normal values; "one": one of each row is 1000 times as large; "tails": many are larger."""
    rng = np.random.default_rng([len(kind), *shape])
    x = rng.standard_normal(shape, np.float32)
    if kind == "one":
        x[np.arange(shape[0]), rng.integers(0, shape[1], shape[0])] *= 1000
    return rng.standard_t(3, shape).astype(np.float32) if kind == "tails" else x


@finely
@pytest.mark.parametrize(
    "kinds", [("normal", "normal"), ("one", "normal"), ("normal", "one"), ("tails", "tails")]
)
def test_many_columns_are_better_than_halves(kinds: tuple[str, str]) -> None:
    """Many columns times f16 weights: nearer to the products than with llama.cpp's rounding."""
    a, b = leaf("f16", some(kinds[0], 64, 1024)), leaf("f32", some(kinds[1], 80, 1024))
    exact = values(b).astype(np.float64) @ values(a).astype(np.float64).swapaxes(2, 3)
    halves = rounded("f16", values(b)) @ values(a).astype(np.float64).swapaxes(2, 3)
    run = Run(ops.mul_mat(a, b))
    assert run.kernel.name == "mul_mat_f16_tiles"
    assert error(run(), exact) < error(halves.astype(np.float32), exact)
    assert (Run(ops.mul_mat(repacked(a), b))() == run()).all()


@finely
@pytest.mark.parametrize("size", [1e-17, 1.0, 1e17])
def test_no_sum_of_integers_overflows(size: float) -> None:
    """The largest there are: n equal values of a block, times the same; squares may be no f32."""
    w = np.zeros((SHARED, 2 * SHARED), np.float32)
    for n in range(SHARED):
        w[n, SHARED : SHARED + n + 1] = 3.0
    b = leaf("f32", np.concatenate([w, -w]) * np.float32(size))
    exact = values(b).astype(np.float64) @ w.T.astype(np.float64)
    for weight in (leaf("f16", w), repacked(leaf("f16", w))):
        got = Run(ops.mul_mat(weight, b))()
        assert np.abs(got - exact).max() < np.abs(exact).max() / 4000


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("n", [3, 80])
@pytest.mark.parametrize("layout", layouts("f16"))
def test_what_is_no_number_stays_none(bad: float, n: int, layout: str) -> None:
    """Of weights and of activations; sums that it is no part of are as without it."""
    w, x = random(40, 130), random(n, 130)

    def run() -> np.ndarray:
        weight = repacked(leaf("f16", w)) if layout else leaf("f16", w)
        return Run(ops.mul_mat(weight, leaf("f32", x)))()[0, 0]

    clean = run()
    w[7, 3] = x[2, 129] = bad
    got = run()
    touched = np.zeros(got.shape, bool)
    touched[2], touched[:, 7] = True, True
    assert not np.isfinite(got[touched]).any()
    assert (got[~touched] == clean[~touched]).all()


def test_tiny_and_zero_blocks() -> None:
    w, x = random(40, 192), random(80, 192)
    w[:, 64:128], x[:40, 128:], x[40:, 128:] = 0, 0, 1e-38
    for weight in (leaf("f16", w), repacked(leaf("f16", w))):
        run = Run(ops.mul_mat(weight, leaf("f32", x)))
        assert error(run(), (x[:, :64] @ w[:, :64].T)[None, None]) < 1e-6
