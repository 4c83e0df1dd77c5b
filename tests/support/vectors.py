"""What the tests of the CPU vocabulary share: numbers to try, and how results are laid out."""

from __future__ import annotations

import numpy as np

from ggml_cpu import vocabulary as v
from ggml_cpu.kernel import fn
from ggml_cpu.target import LANES

f32, i32 = np.float32, np.int32
RNG = np.random.default_rng(20)
SPECIAL = np.array(
    [0, -0.0, 1, -1, 0.5, 1.5, 2.5, -2.5, np.inf, -np.inf, np.nan, 1e-40, 3e38, -1e-45], f32
)


def floats(n: int) -> np.ndarray:
    """[n, LANES] float32: special values first, then random ones."""
    x = RNG.standard_normal(n * LANES).astype(f32) * 10
    x[: len(SPECIAL)] = SPECIAL[: len(x)]
    return x.reshape(n, LANES)


def integers(dtype, *shape: int) -> np.ndarray:
    """Random integers over the whole range of the type."""
    info = np.iinfo(dtype)
    return RNG.integers(info.min, info.max, shape, dtype, endpoint=True)


def same(got, want, *, what="") -> None:
    np.testing.assert_array_equal(got, want, err_msg=str(what), strict=True)


def words(out: np.ndarray, want: list) -> None:
    """Word w of every vector, out[:, w], against want[w]."""
    assert out.shape[1] == len(want)
    for w, expected in enumerate(want):
        np.testing.assert_array_equal(out[:, w], expected, err_msg=f"word {w}")


@fn
def put(d, w, x):
    """Store the w-th native 32-bit result."""
    v.store(d + w * 4 * v.LANES, x)


def to_bf16(x: np.ndarray) -> np.ndarray:
    """Raw bf16 of float32 numbers, rounded to nearest even."""
    bits = x.view(np.uint32).astype(np.uint64)
    rounded = (bits + 0x7FFF + (bits >> 16 & 1)) >> 16
    return np.where(np.isnan(x), bits >> 16 | 64, rounded).astype(np.uint16)
