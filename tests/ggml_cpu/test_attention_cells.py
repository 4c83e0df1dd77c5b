"""FLASH_ATTN_EXT of one or two query rows a head over long caches, cell by cell."""

from __future__ import annotations

import numpy as np
import pytest

from ggml_cpu.kernels.attention.flash_cells import LONG
from tests.ggml_cpu.test_attention import (
    CACHES,
    EXACT,
    RNG,
    attention,
    causal,
    f16,
    inputs,
    kernel_of,
    normal,
)
from tests.support.one_node import meaning, nmse, run


def is_exact(node, n_threads=2) -> bool:
    assert "cells" in kernel_of(node)
    return nmse(run(node, n_threads), meaning(node)) < EXACT


@pytest.mark.parametrize("n_head_kv", [2, 3, 8])
@pytest.mark.parametrize("n_tokens, group", [(1, 1), (1, 2), (2, 1)])
@pytest.mark.parametrize("n_kv", [LONG, LONG + 7, 2 * LONG + 65])
def test_rows_and_cells(n_head_kv, n_tokens, group, n_kv):
    """More threads than parts of the keys, so that heads are in groups, and fewer."""
    q, k, v = inputs(64, 96, group * n_head_kv, n_head_kv, n_tokens, n_kv)
    node = attention(q, k, v, causal(n_tokens, n_kv))
    for n_threads in (1, 2, 3, 7, 12):
        assert is_exact(node, n_threads)


@pytest.mark.parametrize("d, dv", [(32, 32), (64, 128), (128, 64), (256, 256), (192, 128)])
def test_head_sizes(d, dv):
    q, k, v = inputs(d, dv, 4, 2, 1, LONG)
    assert is_exact(attention(q, k, v))


@pytest.mark.parametrize("kind", CACHES)
@pytest.mark.parametrize("values", CACHES)
def test_blocks(kind, values):
    q, k, v = inputs(64, 96, 4, 2, 1, LONG + 3)
    assert is_exact(attention(q, k, v, kind=kind, values=values))


@pytest.mark.parametrize("kind", ["f32", "bf16"])
def test_floats(kind):
    q, k, v = inputs(64, 96, 4, 2, 1, LONG + 3)
    assert is_exact(attention(q, k, v, kind=kind))


@pytest.mark.parametrize("bias", [0.0, 8.0])
@pytest.mark.parametrize("cap", [0.0, 5.0])
@pytest.mark.parametrize("sunk", [False, True])
def test_slopes_caps_and_sinks(bias, cap, sunk):
    q, k, v = inputs(32, 32, 6, 3, 1, LONG)
    mask = -np.abs(normal(1, LONG)).astype(f16)
    mask[:, ::5] = -np.inf
    sinks = 3 * normal(6) if sunk else None
    assert is_exact(attention(4 * q, k, v, mask, bias=bias, cap=cap, sinks=sinks))


@pytest.mark.parametrize("n_threads", [1, 2, 5])
def test_sequences(n_threads):
    """Each has a mask of its own; of the second one, only cells at the end are seen."""
    q, k, v = inputs(64, 64, 4, 2, 1, LONG, n_seqs=3)
    mask = np.zeros((3, 1, 1, LONG), f16)
    mask[1, ..., : LONG - 70] = -np.inf
    mask[2, ..., 40:] = -np.inf
    assert is_exact(attention(q, k, v, mask), n_threads)


@pytest.mark.parametrize("kind", ["f16", "q8_0"])
@pytest.mark.parametrize("odd", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("n_threads", [1, 3])
def test_hidden_cells_may_hold_anything(kind, odd, n_threads):
    q, k, v = inputs(64, 96, 6, 3, 1, LONG)
    mask = np.where(RNG.random((1, LONG)) < 0.5, 0, -np.inf).astype(f16)
    mask[:, 1::3] = -np.inf
    clean = run(attention(q, k, v, mask, kind=kind), n_threads)
    with np.errstate(invalid="ignore"):
        k[:, 1::3, :, ::7], v[:, 1::6, :, :3] = odd, odd
        node = attention(q, k, v, mask, kind=kind)
        assert "cells" in kernel_of(node)
        np.testing.assert_array_equal(run(node, n_threads), clean)


def test_a_token_that_sees_nothing_gets_zeros():
    q, k, v = inputs(32, 32, 2, 2, 2, LONG)
    mask = np.zeros((2, LONG), f16)
    mask[1] = -np.inf
    got = run(attention(q, k, v, mask))
    assert (got[0, 1] == 0).all()
    assert (got[0, 0] != 0).all()


@pytest.mark.parametrize(
    "n_head, n_head_kv, n_tokens, n_kv, d",
    [(2, 1, 1, LONG, 64), (6, 2, 1, LONG, 64), (4, 2, 1, LONG - 1, 64), (4, 2, 1, LONG, 40)],
)
def test_others_are_read_head_by_head(n_head, n_head_kv, n_tokens, n_kv, d):
    """One head, many rows, few cells, heads that are no whole blocks."""
    q, k, v = inputs(d, d, n_head, n_head_kv, n_tokens, n_kv)
    assert "rows" in kernel_of(attention(q, k, v))


def test_masks_of_heads_are_read_head_by_head():
    q, k, v = inputs(64, 64, 4, 2, 1, LONG)
    node = attention(q, k, v, np.zeros((1, 4, 1, LONG), f16))
    assert "rows" in kernel_of(node)
