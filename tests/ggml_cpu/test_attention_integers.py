"""FLASH_ATTN_EXT in 16-bit integers, or in parts of bf16 by AMX: many tokens and keys."""

from __future__ import annotations

import numpy as np
import pytest

from ggml_cpu.kernels.attention.flash_integers import MIN_KEYS, ROWS
from ggml_cpu.kernels.attention.flash_rows import FEW
from ggml_cpu.target import AMX, VNNI
from ggml_py import ops
from ggml_py.tensor import Tensor
from tests.ggml_cpu.test_attention import (
    RNG,
    attention,
    causal,
    heads_inside,
    inputs,
    kernel_of,
    leaf,
    normal,
)
from tests.support.one_node import Floats, meaning, nmse, run

pytestmark = pytest.mark.skipif(not VNNI, reason="this CPU has no products of 16-bit integers")

BEST = "registers" if AMX else "integers"
NEAR = 4e-8  # half of what queries and weights rounded to f16 give
f16, f32 = np.float16, np.float32


def near(node: Tensor, n_threads: int = 2, bound: float = NEAR) -> Floats:
    assert BEST in kernel_of(node)
    got = run(node, n_threads)
    assert nmse(got, meaning(node)) < bound
    return got


@pytest.mark.parametrize(
    "d, dv", [(64, 64), (128, 128), (40, 32), (72, 96), (192, 128), (576, 512)]
)
@pytest.mark.parametrize("n_kv", [MIN_KEYS, 577, 640])
def test_head_sizes(d: int, dv: int, n_kv: int) -> None:
    q, k, v = inputs(d, dv, 4, 2, 33, n_kv)
    near(attention(q, k, v, causal(33, n_kv)))


@pytest.mark.parametrize("n_tokens", [22, 64, 70, 150])
@pytest.mark.parametrize("n_threads", [1, 2, 3])
def test_prompts(n_tokens: int, n_threads: int) -> None:
    q, k, v = inputs(64, 64, 6, 2, n_tokens, 600, n_seqs=2)
    near(attention(q, k, v, causal(n_tokens, 600)), n_threads)


def test_more_rows_than_a_unit() -> None:
    q, k, v = inputs(32, 32, 8, 1, 130, 520)
    near(attention(q, k, v, causal(130, 520)), 1)


@pytest.mark.parametrize("kind, values", [("bf16", "bf16"), ("q8_0", "q8_0"), ("q4_0", "f16")])
def test_types(kind: str, values: str) -> None:
    q, k, v = inputs(64, 64, 4, 2, 40, 530)
    near(attention(q, k, v, causal(40, 530), kind=kind, values=values))


@pytest.mark.parametrize("bias", [0.0, 8.0])
@pytest.mark.parametrize("cap", [0.0, 5.0])
@pytest.mark.parametrize("sunk", [False, True])
def test_slopes_caps_and_sinks(bias: float, cap: float, sunk: bool) -> None:
    q, k, v = inputs(32, 32, 6, 3, 40, 530)
    mask = np.where(causal(40, 530) < 0, -np.inf, -np.abs(normal(40, 530))).astype(f16)
    sinks = 3 * normal(6) if sunk else None
    near(attention(4 * q, k, v, mask, bias=bias, cap=cap, sinks=sinks), bound=4 * NEAR)


@pytest.mark.parametrize("heads, seqs", [(1, 1), (1, 2), (2, 1), (4, 2)])
def test_masks_of_heads_and_sequences(heads: int, seqs: int) -> None:
    q, k, v = inputs(32, 32, 4, 2, 40, 530, n_seqs=2)
    mask = RNG.standard_normal((seqs, heads, 48, 544)).astype(f16)
    mask[RNG.random(mask.shape) < 0.4] = -np.inf
    mask[..., 0] = 0
    near(attention(q, k, v, mask))


def test_without_a_mask() -> None:
    q, k, v = inputs(64, 64, 4, 2, 40, 530)
    near(attention(q, k, v))


@pytest.mark.parametrize("n_threads", [1, 3])
def test_one_key_head_for_several_threads(n_threads: int) -> None:
    """Its keys are in parts, of which some are hidden."""
    q, k, v = inputs(64, 64, 5, 1, 20, 1000)
    mask = np.zeros((20, 1000), f16)
    mask[:, :600] = -np.inf
    near(attention(q, k, v, mask, sinks=normal(5)), n_threads)


def test_values_inside_the_keys() -> None:
    q, k = normal(1, 20, 9, 96), leaf(normal(1, 520, 1, 96).astype(f16))
    v = ops.view_4d(k, 64, 1, 520, 1, *k.nb[1:], 0)
    q, k, v = (heads_inside(t) for t in (leaf(q), k, v))
    near(ops.flash_attn_ext(q, k, v, leaf(causal(20, 520)), 0.1))


@pytest.mark.parametrize("size", [1e-4, 1.0, 300.0])
def test_values_of_any_size(size: float) -> None:
    """Rows that differ, one row a thousand times the others', one value of a row."""
    q, k, v = inputs(64, 64, 2, 2, 70, 600)
    v *= np.exp(normal(1, 600, 2, 1)) * size
    v[:, 77], v[0, 99, 1, 5] = 1000 * v[:, 77], 100 * size
    near(attention(q, k, np.clip(v, -6e4, 6e4), causal(70, 600)))


def test_flat_and_sharp_weights() -> None:
    """All keys of a block alike: the largest sums there are. One above all."""
    q, k, v = inputs(128, 128, 2, 2, 70, 600)
    near(attention(0 * q, k, np.abs(v) * 0 + 3, causal(70, 600)))
    near(attention(30 * q, k, v, causal(70, 600)), bound=1e-4)


def test_large_scores_are_as_exact_as_the_keys() -> None:
    """Error of a score: 1e-4 of |q| * |k| / sqrt(d); llama.cpp's, of f16 queries, is twice that."""
    q, k, v = inputs(64, 64, 2, 2, 70, 600)
    q = RNG.standard_normal(q.shape).astype(f32) * 8
    exact = meaning(attention(q, k, v, kind="f32"))
    node = attention(q, k, v)
    halves = meaning(attention(q.astype(f16).astype(f32), k, v, kind="f32"))
    assert nmse(near(node, bound=1e-4), exact) < nmse(halves, exact)


def test_hidden_cells_do_not_matter() -> None:
    q, k, v = inputs(64, 64, 4, 2, 40, 700)
    mask = np.where(RNG.random((40, 700)) < 0.5, 0, -np.inf).astype(f16)
    mask[:, 64:150] = -np.inf
    hidden = (mask == -np.inf).all(0)
    first = near(attention(q, k, v, mask))
    k[:, hidden], v[:, hidden] = 1e4, -1e4
    np.testing.assert_array_equal(near(attention(q, k, v, mask)), first)


@pytest.mark.parametrize("n_threads", [1, 3])
@pytest.mark.parametrize("kind", ["f16", "bf16", "q8_0"])
@pytest.mark.parametrize("odd", [np.nan, np.inf, -np.inf])
def test_hidden_cells_may_hold_anything(n_threads: int, kind: str, odd: float) -> None:
    q, k, v = inputs(64, 96, 6, 2, 40, 600)
    mask = np.where(RNG.random((40, 600)) < 0.5, 0, -np.inf).astype(f16)
    mask[:, 1::3], mask[2, 4] = -np.inf, 0
    clean = run(attention(q, k, v, mask, kind=kind), n_threads)
    with np.errstate(invalid="ignore"):
        k[:, 1::3, :, ::7], v[:, 1::6, :, :3] = odd, odd
        node = attention(q, k, v, mask, kind=kind)
        got, wanted = run(node, n_threads), meaning(node)
    blind = np.arange(40) != 2
    assert nmse(got[:, blind], clean[:, blind]) < NEAR
    np.testing.assert_array_equal(np.isnan(got), np.isnan(wanted))
    assert not np.isfinite(got[:, 2]).all()


def test_keys_that_are_infinite_are_seen() -> None:
    """By queries whose products with them are -inf: they have no weight, and all others have."""
    q, k, v = inputs(64, 64, 2, 2, 70, 600)
    q[...], k[0, 100, 1, ::7] = np.abs(q), -np.inf
    near(attention(q, k, v, causal(70, 600)))


@pytest.mark.parametrize("odd", [np.nan, np.inf])
def test_values_that_are_no_numbers_are_seen(odd: float) -> None:
    """By the tokens that see their cell, in their column alone."""
    q, k, v = inputs(64, 64, 2, 2, 70, 600)
    v[0, 560, 1, 5] = odd
    node = attention(q, k, v, causal(70, 600))
    with np.errstate(invalid="ignore"):
        got, wanted = run(node), meaning(node)
    odd_ones = ~np.isfinite(wanted)
    assert odd_ones[0, 30:, 1, 5].all() and odd_ones.sum() == 40
    np.testing.assert_array_equal(~np.isfinite(got), odd_ones)
    assert nmse(got[~odd_ones], wanted[~odd_ones]) < NEAR


@pytest.mark.parametrize("sunk", [False, True])
def test_a_token_that_sees_nothing_gets_zeros(sunk: bool) -> None:
    q, k, v = inputs(32, 32, 4, 1, 30, 530)
    mask = np.zeros((30, 530), f16)
    mask[1] = -np.inf
    got = near(attention(q, k, v, mask, sinks=normal(4) if sunk else None))
    assert (got[0, 1] == 0).all()
    assert (got[0, ::2] != 0).all()


def test_queries_that_are_no_numbers_give_none() -> None:
    q, k, v = inputs(64, 64, 2, 2, 70, 600)
    clean = run(attention(q, k, v))
    q[0, 7, 1, 3] = np.nan
    got = run(attention(q, k, v))
    assert np.isnan(got[0, 7, 1]).all()
    assert np.isfinite(np.delete(got, 7, 1)).all()
    np.testing.assert_array_equal(np.delete(got, 7, 1), np.delete(clean, 7, 1))


@pytest.mark.parametrize(
    "d, n_tokens, n_kv, kind, kernel",
    [
        (64, FEW, MIN_KEYS, "f16", "flash_attn_rows_f16"),
        (64, FEW + 1, MIN_KEYS - 1, "f16", f"flash_attn_{BEST}_f16"),
        (ROWS + ROWS // 2, FEW + 1, MIN_KEYS, "f16", "flash_attn_tiles_f16"),
        (64, FEW + 1, MIN_KEYS, "f32", "flash_attn_tiles_f32"),
    ],
)
def test_the_rest_is_in_f32(d: int, n_tokens: int, n_kv: int, kind: str, kernel: str) -> None:
    node = attention(*inputs(d, d, 1, 1, n_tokens, n_kv), kind=kind)
    assert kernel_of(node) == kernel
    assert nmse(run(node), meaning(node)) < 1e-11
