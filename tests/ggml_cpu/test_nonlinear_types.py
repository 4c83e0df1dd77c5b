"""iq4_nl, mxfp4 and iq4_xs: products and rows, in place and in panels, with any bits of a block."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from ggml_cpu.quants.weight import LAYOUT, weights
from ggml_py import ops
from ggml_py.backend import HostBuffer
from ggml_py.tensor import Tensor
from ggml_py.types import BY_NAME
from tests.products import Floats, Run, error, leaf, place, repacked, rounded, values

KINDS = ("iq4_nl", "mxfp4", "iq4_xs")
EXACT = 1e-11


def random(*shape: int) -> Floats:
    seed = np.random.SeedSequence(shape)
    return np.random.default_rng(seed).standard_normal(shape, np.float32)


def any_bits(kind: str, k: int, *shape: int) -> Tensor:
    """A leaf [k, ...] of random bytes: every level, and every scale that is not extreme."""
    rng = np.random.default_rng(k)
    t = Tensor(BY_NAME[kind], (k, *shape[::-1]))
    blocks = rng.integers(0, 256, (*shape, k // t.type.block_size, t.type.type_size), np.uint8)
    if kind == "mxfp4":
        blocks[..., 0] = rng.integers(120, 134, blocks.shape[:-1])
    else:
        scale = rng.uniform(-1, 1, blocks.shape[:-1]).astype(np.float16)
        blocks[..., :2] = scale[..., None].view(np.uint8)
    return place(t, blocks)


def product(a: Tensor, x: Floats) -> NDArray[np.float64]:
    w = values(a)[0, 0].astype(np.float64)
    return (rounded(weights()[a.type.name].activations.name, x) @ w.T)[None, None]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("m", "blocks"), [(1, 2), (5, 1), (17, 3), (16, 8), (37, 13)])
def test_mul_mat(kind: str, m: int, blocks: int) -> None:
    k = blocks * BY_NAME[kind].block_size
    a = any_bits(kind, k, m)
    for n in (1, 2, 3, 9, 13):
        x = random(n, k) + np.float32(0.5)
        for weight, layout in ((a, ""), (repacked(a), LAYOUT)):
            assert weight.layout == layout
            run = Run(ops.mul_mat(weight, leaf("f32", x)), 1 + n % 3)
            assert error(run(), product(a, x)) < EXACT, run.kernel.name


@pytest.mark.parametrize("kind", KINDS)
def test_mul_mat_id(kind: str) -> None:
    a = any_bits(kind, 256, 5, 37)
    w = values(a)[0].astype(np.float64)
    for tokens in (1, 3, 30):
        ids = np.random.default_rng(tokens).integers(0, 5, (tokens, 2))
        x = random(tokens, 1, 256)
        column = rounded(weights()[kind].activations.name, x)[:, 0]
        expected = np.einsum("tsmk,tk->tsm", w[ids], column)[None]
        for weight in (a, repacked(a)):
            run = Run(ops.mul_mat_id(weight, leaf("f32", x), leaf("i32", ids)), 3)
            assert error(run(), expected) < EXACT, run.kernel.name


@pytest.mark.parametrize("kind", KINDS)
def test_get_rows(kind: str) -> None:
    a = any_bits(kind, 768, 37)
    ids = leaf("i32", np.random.default_rng(1).integers(0, 37, (1, 50)))
    expected = values(a)[:, :, values(ids)[0, 0, 0].astype(int)]
    for weight in (a, repacked(a)):
        assert (Run(ops.get_rows(weight, ids), 3)() == expected).all(), weight.layout


@pytest.mark.parametrize("exponent", [0, 1, 2, 3, 127, 254, 255])
def test_scales_of_mxfp4(exponent: int) -> None:
    """Those of the first two are denormal; 255 is a number like any other."""
    a = any_bits("mxfp4", 32, 20)
    assert isinstance(a.buffer, HostBuffer)
    blocks = a.buffer.data[: a.nbytes].reshape(20, 17)
    blocks[:] &= 0x11  # levels 0 and 1: no sum is too large
    blocks[:, 0] = exponent
    x = np.full((1, 32), 2.0**10 if exponent < 128 else 2.0**-10, np.float32)
    ids = leaf("i32", np.arange(20)[None])
    expected = product(a, x)
    for weight in (a, repacked(a)):
        assert (Run(ops.get_rows(weight, ids))()[0, 0] == values(a)[0, 0]).all()
        found = Run(ops.mul_mat(weight, leaf("f32", x)))().astype(np.float64)
        assert np.allclose(found, expected, rtol=1e-5, atol=0), weight.layout
