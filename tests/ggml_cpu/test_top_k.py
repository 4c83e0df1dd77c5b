"""TOP_K on the CPU: rows longer than the candidates held, ties, and values that are no numbers."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from ggml_cpu.kernels.sort.top_k import ROOM
from ggml_py import ops
from tests.support.one_node import Floats, leaf, meaning, run

RNG = np.random.default_rng(5)
f32 = np.float32
LENGTHS = [1, 7, 16, 100, ROOM - 1, ROOM, ROOM + 1, 3 * ROOM + 5, 10 * ROOM]


def chosen(x: Floats, k: int) -> NDArray[np.int32]:
    """The indices found, in rising order; they must be the reference's."""
    node = ops.top_k(leaf(x), k)
    found, want = (np.sort(y.view(np.int32), axis=-1) for y in (run(node, 2), meaning(node)))
    np.testing.assert_array_equal(found, want)
    return found.reshape(-1, k)


@pytest.mark.parametrize("n", LENGTHS)
@pytest.mark.parametrize("k", [1, 8, 40, ROOM // 2 + 3, 2 * ROOM])
@pytest.mark.parametrize("order", ["random", "up", "down", "few values"])
def test_the_largest_are_found(n: int, k: int, order: str) -> None:
    x = RNG.standard_normal((3, n)).astype(f32)
    if order == "few values":
        x = np.round(x)  # ties, of which the first count, and zeros of both signs
    elif order != "random":
        x = np.sort(x, axis=-1)[:, :: 1 if order == "up" else -1]
    chosen(x, min(n, k))


@pytest.mark.parametrize("n", [20, 2 * ROOM])
def test_nan_is_the_least(n: int) -> None:
    x = np.full((1, n), np.nan, f32)
    x[0, ::2] *= -1
    np.testing.assert_array_equal(chosen(x, 5)[0], np.arange(5))
    x[0, [3, 11, n - 1]] = -np.inf, np.inf, -1.0
    np.testing.assert_array_equal(chosen(x, 4)[0], [0, 3, 11, n - 1])
