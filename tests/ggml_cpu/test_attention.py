"""FLASH_ATTN_EXT and SOFT_MAX on the CPU: both ways to compute attention, and where they meet."""

from __future__ import annotations

import numpy as np
import pytest

from ggml_cpu.kernels.attention.flash_rows import DIRECT, FEW
from ggml_cpu.table import table
from ggml_py import ops
from ggml_py.tensor import Tensor
from tests.support.one_node import Array, Floats, leaf, meaning, nmse, run

EXACT = 1e-11  # f32 arithmetic on both sides
f16, f32 = np.float16, np.float32
RNG = np.random.default_rng(5)


def normal(*shape: int) -> Floats:
    """Values that f16 holds exactly, so that no rounding of queries or caches is in the way."""
    return RNG.standard_normal(shape).astype(f16).astype(f32)


def causal(n_tokens: int, n_kv: int) -> Array:
    seen = np.arange(n_kv) <= np.arange(n_tokens)[:, None] + n_kv - n_tokens
    return np.where(seen, 0, -np.inf).astype(f16)


def heads_inside(t: Tensor) -> Tensor:
    """[d, n_head, n, B] as it lies in a cache, seen as [d, n, n_head, B]."""
    return ops.permute(t, 0, 2, 1, 3)


def attention(
    q: Floats,
    k: Floats,
    v: Floats,
    mask: Array | None = None,
    *,
    kind: str = "f16",
    values: str = "",
    sinks: Floats | None = None,
    bias: float = 0.0,
    cap: float = 0.0,
) -> Tensor:
    """A node for q [B, T, H, d], k [B, n_kv, H_kv, d], v [B, n_kv, H_kv, d_v]."""
    to = {"f16": f16, "f32": f32}
    key = leaf(k.astype(to[kind])) if kind in to else leaf(k, kind)
    values = values or kind
    value = leaf(v.astype(to[values])) if values in to else leaf(v, values)
    return ops.flash_attn_ext(
        heads_inside(leaf(q)),
        heads_inside(key),
        heads_inside(value),
        None if mask is None else leaf(mask),
        q.shape[-1] ** -0.5,
        bias,
        cap,
        None if sinks is None else leaf(sinks),
    )


def inputs(
    d: int, dv: int, n_head: int, n_head_kv: int, n_tokens: int, n_kv: int, n_seqs: int = 1
) -> tuple[Floats, Floats, Floats]:
    return (
        normal(n_seqs, n_tokens, n_head, d),
        normal(n_seqs, n_kv, n_head_kv, d),
        normal(n_seqs, n_kv, n_head_kv, dv),
    )


def kernel_of(node: Tensor) -> str:
    return table().get(node).name


SIZES = [(64, 64), (128, 128), (40, 40), (72, 72), (33, 17), (192, 128), (576, 512)]


@pytest.mark.parametrize("d, dv", SIZES)
@pytest.mark.parametrize("n_tokens", [1, 40])
def test_head_sizes(d, dv, n_tokens):
    q, k, v = inputs(d, dv, 4, 2, n_tokens, 77)
    node = attention(q, k, v, causal(n_tokens, 77))
    assert nmse(run(node), meaning(node)) < EXACT


@pytest.mark.parametrize("n_kv", [1, 15, 63, 64, 65, 129])
@pytest.mark.parametrize("group", [1, 2, 3, 5, 7, 8, FEW - 1, FEW + 1])
def test_groups_and_cells(group, n_kv):
    """Every number of rows per key head, around the edges of a tile of keys."""
    q, k, v = inputs(48, 48, 2 * group, 2, 1, n_kv)
    node = attention(q, k, v)
    assert ("rows" in kernel_of(node)) == (group <= FEW)
    assert nmse(run(node), meaning(node)) < EXACT


@pytest.mark.parametrize("n_tokens", [2, 13, 22, 64, 70])
@pytest.mark.parametrize("n_threads", [1, 2, 3])
def test_prompts(n_tokens, n_threads):
    q, k, v = inputs(64, 64, 6, 2, n_tokens, 150, n_seqs=2)
    node = attention(q, k, v, causal(n_tokens, 150))
    assert nmse(run(node, n_threads), meaning(node)) < EXACT


@pytest.mark.parametrize("group", [4, FEW + 1])
@pytest.mark.parametrize("n_threads", [2, 3])
def test_parts_of_the_keys_are_merged(group, n_threads):
    """One key head for several threads; the first cells are hidden, so some parts are empty."""
    q, k, v = inputs(64, 64, group, 1, 1, 1000)
    kind = "f16" if group <= FEW else "f32"
    mask = np.zeros((1, 1000), f16)
    mask[:, :600] = -np.inf
    for sinks in (None, normal(group)):
        node = attention(q, k, v, mask, kind=kind, sinks=sinks)
        assert nmse(run(node, n_threads), meaning(node)) < EXACT


@pytest.mark.parametrize("n_tokens", [1, 40])
@pytest.mark.parametrize(
    "kind, values",
    [("f32", "f32"), ("bf16", "bf16"), ("q8_0", "q8_0"), ("q4_0", "f16"), ("q5_1", "iq4_nl")],
)
def test_types(kind, values, n_tokens):
    q, k, v = inputs(64, 64, 4, 2, n_tokens, 100)
    node = attention(q, k, v, causal(n_tokens, 100), kind=kind, values=values)
    assert nmse(run(node), meaning(node)) < EXACT


CACHES = ("f16", "q8_0", "q4_0")


@pytest.mark.parametrize("group", [1, 2, 3, 5, 9])
@pytest.mark.parametrize("kind", CACHES)
@pytest.mark.parametrize("values", CACHES)
def test_blocks_are_read_where_they_are(kind, values, group):
    """For few rows; for more they are made f32 first."""
    for d, n_kv, n_threads in ((32, 7, 1), (64, 15, 2), (96, 65, 1), (128, 150, 2)):
        q, k, v = inputs(d, d + 32, 2 * group, 2, 1, n_kv)
        node = attention(q, k, v, kind=kind, values=values)
        if kind != values or kind != "f16":
            assert kernel_of(node).endswith("mixed") == (group > DIRECT)
        assert nmse(run(node, n_threads), meaning(node)) < EXACT


@pytest.mark.parametrize("n_tokens", [1, 63, 64])
def test_queries_are_not_rounded_to_the_type_of_the_keys(n_tokens):
    """As ggml does for fewer than 64 tokens: then results depend on how a prompt is cut."""
    _, k, v = inputs(64, 64, 2, 2, n_tokens, 100)
    q = RNG.standard_normal((1, n_tokens, 2, 64)).astype(f32)
    node = attention(q, k, v)
    assert nmse(run(node), meaning(node)) < EXACT


@pytest.mark.parametrize("n_tokens", [1, 40])
@pytest.mark.parametrize("bias", [0.0, 8.0])
@pytest.mark.parametrize("cap", [0.0, 5.0])
@pytest.mark.parametrize("sunk", [False, True])
def test_slopes_caps_and_sinks(n_tokens, bias, cap, sunk):
    q, k, v = inputs(32, 32, 6, 3, n_tokens, 90)
    mask = np.where(causal(n_tokens, 90) < 0, -np.inf, -np.abs(normal(n_tokens, 90))).astype(f16)
    sinks = 3 * normal(6) if sunk else None
    node = attention(4 * q, k, v, mask, bias=bias, cap=cap, sinks=sinks)
    assert nmse(run(node), meaning(node)) < EXACT


@pytest.mark.parametrize("n_tokens", [1, 40])
@pytest.mark.parametrize("heads, seqs", [(1, 1), (1, 2), (2, 1), (4, 2)])
def test_masks_of_heads_and_sequences(n_tokens, heads, seqs):
    """A mask may repeat over heads and sequences and have tokens and cells to spare."""
    q, k, v = inputs(32, 32, 4, 2, n_tokens, 70, n_seqs=2)
    mask = RNG.standard_normal((seqs, heads, 48, 96)).astype(f16)
    mask[RNG.random(mask.shape) < 0.4] = -np.inf
    mask[..., 0] = 0
    node = attention(q, k, v, mask)
    assert nmse(run(node), meaning(node)) < EXACT


@pytest.mark.parametrize("n_tokens", [1, 20])
def test_values_inside_the_keys(n_tokens):
    """The compressed cache of multi-head latent attention: values are the start of the keys."""
    q, k = normal(1, n_tokens, 9, 96), leaf(normal(1, 200, 1, 96).astype(f16))
    v = ops.view_4d(k, 64, 1, 200, 1, *k.nb[1:], 0)
    mask = leaf(causal(n_tokens, 200))
    q, k, v = (heads_inside(t) for t in (leaf(q), k, v))
    node = ops.flash_attn_ext(q, k, v, mask, 0.1)
    assert nmse(run(node), meaning(node)) < EXACT


@pytest.mark.parametrize("n_tokens", [1, 40])
def test_hidden_cells_do_not_matter(n_tokens):
    q, k, v = inputs(64, 64, 4, 2, n_tokens, 200)
    mask = np.where(RNG.random((n_tokens, 200)) < 0.5, 0, -np.inf).astype(f16)
    mask[:, 64:150] = -np.inf
    hidden = (mask == -np.inf).all(0)
    first = run(attention(q, k, v, mask))
    k[:, hidden], v[:, hidden] = 1e4, -1e4
    np.testing.assert_array_equal(run(attention(q, k, v, mask)), first)


@pytest.mark.parametrize("n_tokens, n_threads", [(1, 1), (1, 3), (40, 1), (40, 3)])
@pytest.mark.parametrize("kind", ["f32", "f16", "bf16", "q8_0"])
@pytest.mark.parametrize("odd", [np.nan, np.inf, -np.inf])
def test_hidden_cells_may_hold_anything(n_tokens, n_threads, kind, odd):
    """Also where only some of the tokens see them: no other one's result changes."""
    q, k, v = inputs(64, 96, 6, 2, n_tokens, 300)
    mask = np.where(RNG.random((n_tokens, 300)) < 0.5, 0, -np.inf).astype(f16)
    mask[:, 1::3] = -np.inf
    if n_tokens > 2:
        mask[2, 4] = 0
    clean = run(attention(q, k, v, mask, kind=kind), n_threads)
    with np.errstate(invalid="ignore"):
        k[:, 1::3, :, ::7], v[:, 1::6, :, :3] = odd, odd
        node = attention(q, k, v, mask, kind=kind)
        got, wanted = run(node, n_threads), meaning(node)
    blind = np.arange(n_tokens) != 2
    np.testing.assert_array_equal(got[:, blind], clean[:, blind])
    np.testing.assert_array_equal(np.isnan(got), np.isnan(wanted))
    assert n_tokens <= 2 or not np.isfinite(got[:, 2]).all()


@pytest.mark.parametrize("n_tokens, group", [(3, 2), (3, FEW)])
@pytest.mark.parametrize("sunk", [False, True])
def test_a_token_that_sees_nothing_but_hidden_nan_gets_zeros(n_tokens, group, sunk):
    q, k, v = inputs(32, 32, group, 1, n_tokens, 70)
    mask = np.zeros((n_tokens, 70), f16)
    mask[1] = -np.inf
    k[:, 3], v[:, 3] = np.nan, np.nan
    got = run(attention(q, k, v, mask, sinks=normal(group) if sunk else None))
    assert (got[0, 1] == 0).all()
    assert np.isnan(got[0, ::2]).all()


@pytest.mark.parametrize("n_tokens, group", [(3, 2), (3, FEW)])
@pytest.mark.parametrize("sunk", [False, True])
def test_a_token_that_sees_nothing_gets_zeros(n_tokens, group, sunk):
    q, k, v = inputs(32, 32, group, 1, n_tokens, 70)
    mask = np.zeros((n_tokens, 70), f16)
    mask[1] = -np.inf
    got = run(attention(q, k, v, mask, sinks=normal(group) if sunk else None))
    assert (got[0, 1] == 0).all()
    assert (got[0, ::2] != 0).all()


def test_prompt_is_token_by_token():
    q, k, v = inputs(64, 64, 4, 2, 70, 70)
    whole = run(attention(q, k, v, causal(70, 70)), 2)
    steps = [run(attention(q[:, [t]], k[:, : t + 1], v[:, : t + 1]), 2) for t in range(70)]
    assert nmse(np.concatenate(steps, 1), whole) < EXACT


def test_large_scores():
    q, k, v = inputs(64, 64, 4, 2, 1, 100)
    node = attention(128 * q, k, v)
    assert nmse(run(node), meaning(node)) < 1e-8


def test_sparse_rows_are_refused():
    q, k, v = (leaf(normal(1, 2, 8, 8).astype(t)) for t in (f32, f16, f16))
    node = ops.flash_attn_ext(q, ops.permute(k, 1, 0, 2, 3), v, None, 1.0)
    assert "dense rows" in table().why_not(node)


# ---- SOFT_MAX


@pytest.mark.parametrize("n", [1, 5, 16, 17, 300])
@pytest.mark.parametrize("kind", [None, f16, f32])
@pytest.mark.parametrize("sunk", [False, True])
def test_soft_max(n, kind, sunk):
    x, mask = leaf(20 * normal(2, 6, 3, n)), None
    if kind is not None:
        values = normal(1, 2, 5, n)
        values[..., 1::3] = -np.inf
        mask = leaf(values.astype(kind))
    bias = 8.0 if mask is not None else 0.0
    node = ops.soft_max_ext(x, mask, 0.3, bias, leaf(5 * normal(6)) if sunk else None)
    for n_threads in (1, 3):
        assert nmse(run(node, n_threads), meaning(node)) < EXACT


def test_soft_max_of_large_scores():
    got = run(ops.soft_max(leaf(np.array([[1e30, 1e30, -1e30], [-3e38, -3e38, -3e38]], f32))))
    np.testing.assert_allclose(got[0, 0], [[0.5, 0.5, 0], [1 / 3] * 3], rtol=1e-6)
