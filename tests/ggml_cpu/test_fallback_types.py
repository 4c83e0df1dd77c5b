"""q4_1, q5_0 and q5_1: products and rows, in place and in panels.

The minimum of a q4_1 or q5_1 block meets the sum of the activations as q8_1 keeps it, rounded to
f16: `sum_rounding` is what that adds to the product of the values.
"""

from __future__ import annotations

import numpy as np
import pytest

from ggml_cpu.blocks.format import LAYOUT
from ggml_py import ops
from ggml_py.backend import HostBuffer
from ggml_py.tensor import Tensor
from tests.support.products import Floats, Run, error, leaf, repacked, rounded, values

KINDS = ("q4_1", "q5_0", "q5_1")
EXACT = 1e-11


def random(*shape: int) -> Floats:
    seed = np.random.SeedSequence(shape)
    return np.random.default_rng(seed).standard_normal(shape, np.float32)


def minima(a: Tensor) -> Floats:
    """Of every block of a leaf [k, m]: [m, k / 32]."""
    assert isinstance(a.buffer, HostBuffer)
    blocks = a.buffer.data[: a.nbytes].reshape(a.ne[1], -1, a.type.type_size)
    return np.ascontiguousarray(blocks[..., 2:4]).view(np.float16)[..., 0].astype(np.float32)


def sum_rounding(x: Floats) -> Floats:
    """Of every block: the sum as q8_1 keeps it less that of the rounded values."""
    exact = rounded("q8_0", x).reshape(len(x), -1, 32).sum(-1)
    blocks = x.reshape(len(x), -1, 32)
    step = np.abs(blocks).max(-1, keepdims=True) / np.float32(127)
    inverse = np.float32(127) / np.abs(blocks).max(-1, keepdims=True)
    total = np.rint(blocks * inverse).sum(-1, dtype=np.float32)
    return (step[..., 0] * total).astype(np.float16).astype(np.float32) - exact


def product(a: Tensor, x: Floats) -> np.ndarray:
    expected = rounded("q8_0", x) @ values(a)[0, 0].astype(np.float64).T
    if a.type.name != "q5_0":
        expected += sum_rounding(x) @ minima(a).T
    return expected[None, None]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("m", "k"), [(1, 32), (17, 96), (16, 256), (37, 416)])
def test_mul_mat(kind: str, m: int, k: int) -> None:
    a = leaf(kind, random(m, k))
    for n in (1, 2, 3, 9, 13):
        x = random(n, k) + np.float32(0.5)
        for weight in (a, repacked(a)):
            run = Run(ops.mul_mat(weight, leaf("f32", x)), 1 + n % 3)
            assert error(run(), product(a, x)) < EXACT, run.kernel.name


@pytest.mark.parametrize("kind", KINDS)
def test_get_rows(kind: str) -> None:
    a = leaf(kind, random(37, 96))
    ids = leaf("i32", np.random.default_rng(1).integers(0, 37, (1, 50)))
    expected = values(a)[:, :, values(ids)[0, 0, 0].astype(int)]
    for weight, layout in ((a, ""), (repacked(a), LAYOUT)):
        assert weight.layout == layout
        assert error(Run(ops.get_rows(weight, ids), 3)(), expected) < 1e-13


@pytest.mark.parametrize("kind", ("q4_1", "q5_1"))
def test_zero_activations(kind: str) -> None:
    a, x = leaf(kind, random(20, 64)), leaf("f32", np.zeros((3, 64), np.float32))
    for weight in (a, repacked(a)):
        assert (Run(ops.mul_mat(weight, x))() == 0).all()
