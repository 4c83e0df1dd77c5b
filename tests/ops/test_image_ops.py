"""The image and signal ops: references against known results, rules against bad input."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from ggml_py import ops
from ggml_py.backend import CompileOptions
from ggml_py.errors import ShapeError
from ggml_py.graph import Graph
from ggml_py.tensor import Tensor
from ggml_py.types import F16, F32
from ggml_ref.backend import RefDevice
from ggml_ref.values import load, store

RNG = np.random.default_rng(4)


def leaf(values: Any) -> Tensor:
    array = np.asarray(values, np.float64)
    t = Tensor(F32, array.shape[::-1])
    t.buffer = RefDevice().alloc(t.nbytes)
    store(t, array.reshape(t.ne[::-1]))
    return t


def compute(result: Tensor) -> Any:
    device, graph = RefDevice(), Graph()
    graph.build_forward_expand(result)
    for t in graph.nodes:
        if t.view_src is None:
            t.buffer = device.alloc(t.nbytes)
        else:
            t.buffer, t.offset = t.view_src.buffer, t.view_src.offset + t.view_offs
    device.compile(graph.compute_nodes(), CompileOptions()).run()
    return load(result)


def test_conv_2d_is_a_correlation() -> None:
    image, kernel = RNG.normal(size=(2, 9, 8)), RNG.normal(size=(3, 2, 3, 2))
    got = compute(ops.conv_2d_direct(leaf(kernel), leaf(image), 1, 1, 0, 0, 1, 1))[0]
    windows = np.lib.stride_tricks.sliding_window_view(image, (3, 2), (1, 2))
    np.testing.assert_allclose(got, np.einsum("oiyx,ihwyx->ohw", kernel, windows), atol=1e-5)


def test_conv_through_columns_is_the_direct_one() -> None:
    a, b, p = leaf(RNG.normal(size=(4, 3, 3, 2))), leaf(RNG.normal(size=(2, 3, 9, 8))), (2, 1, 1, 0)
    direct = compute(ops.conv_2d_direct(a, b, *p, 1, 2))
    np.testing.assert_allclose(compute(ops.conv_2d(a, b, *p, 1, 2)), direct, atol=1e-2)


def test_transposed_convolution_is_the_transpose() -> None:
    """<conv(x), y> = <x, conv_transpose(y)> with the kernel's channels swapped."""
    kernel, x, y = (
        RNG.normal(size=(4, 3, 3, 2)),
        RNG.normal(size=(3, 9, 8)),
        RNG.normal(size=(4, 4, 4)),
    )
    there = compute(ops.conv_2d_direct(leaf(kernel), leaf(x), 2, 2, 0, 0, 1, 1))[0]
    back = compute(ops.conv_transpose_2d_p0(leaf(kernel), leaf(y), 2))[0]
    assert (there * y).sum() == pytest.approx((x * back).sum(), rel=1e-5)


def test_resizing_a_ramp_gives_a_ramp() -> None:
    ramp = leaf(np.arange(8.0)[None].repeat(4, 0))
    for mode in ("bilinear", "bicubic"):
        got = compute(ops.interpolate(ramp, 15, 4, 1, 1, mode, align_corners=True))[0, 0, 2, 2:-2]
        np.testing.assert_allclose(got, np.arange(1, 6.5, 0.5), atol=1e-5)


def test_antialiased_thirds_weigh_five_pixels() -> None:
    """A triangle three pixels wide to each side: weights 1/9, 2/9, 3/9, 2/9, 1/9."""
    image = np.eye(9)[:, None]
    got = compute(ops.interpolate(leaf(image), 3, 1, 9, 1, "bilinear", antialias=True))
    np.testing.assert_allclose(got[0, 2:7, 0, 1] * 9, [1, 2, 3, 2, 1], rtol=1e-5)


def test_windows_and_back() -> None:
    x = leaf(RNG.normal(size=(5, 7, 3)))
    np.testing.assert_array_equal(compute(ops.win_unpart(ops.win_part(x, 4), 7, 5, 4)), load(x))


REFUSED: dict[str, Callable[[], Tensor]] = {
    "image is smaller": lambda: ops.im2col(
        Tensor(F16, (9, 9, 1, 1)), Tensor(F32, (3, 3, 1, 1)), 1, 1, 0, 0, 1, 1, True, F16
    ),
    "the same number of channels": lambda: ops.conv_2d_direct(
        Tensor(F32, (3, 3, 2, 4)), Tensor(F32, (9, 9, 3, 1)), 1, 1, 0, 0, 1, 1
    ),
    "stride 0 and dilation 1 must be positive": lambda: ops.conv_2d_direct(
        Tensor(F32, (3, 3, 2, 4)), Tensor(F32, (9, 9, 2, 1)), 0, 1, 0, 0, 1, 1
    ),
    "shorter than a row": lambda: ops.pad_reflect_1d(Tensor(F32, (4, 1)), 4, 0),
    "shorter than their": lambda: ops.roll(Tensor(F32, (4, 1)), 4, 0, 0, 0),
    "positive step": lambda: ops.arange(0, 1, -1),
    "antialias needs": lambda: ops.upscale(Tensor(F32, (4, 4)), 2, "bicubic", antialias=True),
    "kind must be": lambda: ops.pool_1d(Tensor(F32, (4, 4)), "min", 2, 2, 0),
    "multiple of": lambda: ops.col2im_1d(Tensor(F32, (7, 4)), 1, 2, 0),
}


@pytest.mark.parametrize("rule", REFUSED)
def test_bad_arguments_are_refused(rule: str) -> None:
    with pytest.raises(ShapeError, match=rule):
        REFUSED[rule]()
