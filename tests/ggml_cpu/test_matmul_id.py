"""MUL_MAT_ID: tokens times their experts' matrices, every layout; and rows of repacked weights."""

from __future__ import annotations

import numpy as np
import pytest

from ggml_cpu.blocks.format import FEW, LAYOUT
from ggml_cpu.target import ZEN4
from ggml_py import ops
from ggml_py.types import BY_NAME
from tests.support.products import Run, error, layouts, leaf, multiplied, repacked, values

TYPES = ("f32", "f16", "bf16", "q8_0", "q4_0", "q2_K", "q3_K", "q4_K", "q5_K", "q6_K")
QUANTIZED = TYPES[3:]
SOME = ("f32", "f16", "bf16", "q8_0", "q3_K", "q4_K", "q6_K")
SPARE = 3  # ids lie in rows that are longer than the experts used, as a top-k view has them
EXACT = 1e-11


def random(*shape: int) -> np.ndarray:
    seed = np.random.SeedSequence(shape)
    return np.random.default_rng(seed).standard_normal(shape, np.float32)


def some_ids(tokens: int, used: int, experts: int) -> np.ndarray:
    rng = np.random.default_rng(tokens * 100 + used)
    return rng.integers(0, experts, (tokens, used + SPARE))


def check(a, b, all_ids: np.ndarray, used: int, n_threads: int = 2) -> None:
    """Compare with float64 products of the rounded activations, layout by layout."""
    tokens, slots = all_ids.shape[0], b.ne[1]
    ids = all_ids[:, 1 : 1 + used]
    view = ops.view(leaf("i32", all_ids), (used, tokens), (used + SPARE,), 1)
    for layout in layouts(a.type.name):
        weight = repacked(a) if layout else a
        few, columns = not layout and tokens <= FEW, tokens * used // a.ne[2]
        w, x = (operand[0] for operand in multiplied(a, b, few, columns))
        expected = np.stack(
            [[w[ids[t, s]] @ x[t, s % slots] for s in range(used)] for t in range(tokens)]
        )[None]
        run = Run(ops.mul_mat_id(weight, b, view), n_threads)
        assert error(run(), expected) < EXACT, f"{run.kernel.name} on {n_threads} threads"


@pytest.mark.parametrize("kind", TYPES)
def test_one_token(kind: str) -> None:
    a = leaf(kind, random(6, 37, 256))
    for slots in (1, 4):
        check(a, leaf("f32", random(1, slots, 256)), some_ids(1, 4, 6), 4, 3)


@pytest.mark.parametrize("kind", SOME)
@pytest.mark.parametrize("tokens", [2, 4, 13, 57])
def test_several_tokens(kind: str, tokens: int) -> None:
    a = leaf(kind, random(6, 37, 256))
    for slots in (1, 2, 4):
        check(a, leaf("f32", random(tokens, slots, 256)), some_ids(tokens, 4, 6), 4, 1 + tokens % 3)


@pytest.mark.parametrize("kind", ("f32", "q4_K"))
def test_uneven_groups(kind: str) -> None:
    """One expert gets nearly all, most get nothing, one token asks for the same expert twice."""
    a = leaf(kind, random(40, 19, 256))
    ids = np.full((30, 2 + SPARE), 33)
    ids[7, 1:3] = [39, 0]
    ids[8, 1:3] = [5, 5]
    ids[29, 1:3] = [0, 39]
    check(a, leaf("f32", random(30, 1, 256)), ids, 2, 3)


def test_more_experts_than_entries() -> None:
    a = leaf("q8_0", random(64, 16, 32))
    check(a, leaf("f32", random(2, 3, 32)), some_ids(2, 3, 64), 3)


def test_groups_serve_the_next_weight() -> None:
    """gate, up: the second product may skip grouping if it reads the same operands."""
    b, ids = leaf("f32", random(9, 1, 256)), leaf("i32", some_ids(9, 0, 5))
    first = Run(ops.mul_mat_id(repacked(leaf("q4_K", random(5, 48, 256))), b, ids))
    second = Run(ops.mul_mat_id(repacked(leaf("q6_K", random(8, 16, 256))), b, ids))
    assert first.kernel.prepare == second.kernel.prepare
    assert [k.reads for k in first.kernel.prepare] == [(2, 3)]
    second()
    first()
    used = min(r.kernel.scratch(r.node, 2)[0] for r in (first, second))
    same = first.scratch[:used] == second.scratch[:used]
    assert same[first.scratch[:used] != 0xAB].all()


@pytest.mark.parametrize("kind", QUANTIZED)
def test_get_rows(kind: str) -> None:
    k = 288 if BY_NAME[kind].block_size == 32 else 768  # an odd number of blocks
    a = leaf(kind, random(2, 3, 37, k))
    ids = leaf("i32", np.random.default_rng(1).integers(0, 37, (2, 3, 11)))
    expected = np.take_along_axis(values(a), values(ids)[0].astype(int)[..., None], 2)
    for weight, layout in ((a, ""), (repacked(a), LAYOUT)):
        assert weight.layout == layout
        run = Run(ops.get_rows(weight, ids), 3)
        assert error(run(), expected) < 1e-13, run.kernel.name


def test_what_is_repacked() -> None:
    a = leaf("q4_K", random(20, 256))
    assert repacked(a, "MUL_MAT").layout == LAYOUT
    assert repacked(a, "MUL_MAT", "GET_ROWS").layout == LAYOUT
    assert repacked(a, "GET_ROWS").layout == ""
    assert repacked(a, "MUL_MAT", "CPY").layout == ""
    half = leaf("f16", random(20, 256))
    assert repacked(half, "MUL_MAT").layout == (LAYOUT if ZEN4 else "")
    assert repacked(half, "MUL_MAT", "GET_ROWS").layout == ""  # panels have them rounded
    assert repacked(leaf("iq2_xs", random(20, 256)), "MUL_MAT").layout == ""
