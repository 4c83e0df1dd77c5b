"""Every quantized type in the kernels that read it, against the reference."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from ggml_opencl.kernels import constants, quantized_types, source
from ggml_py import ops
from ggml_py.backend import registry, tensor_bytes
from ggml_py.graph import Graph
from ggml_py.grids import grid
from ggml_py.plan.sched import Scheduler
from ggml_py.tensor import Tensor
from ggml_py.types import BY_NAME, F16, F32, TYPES
from ggml_ref.quants import quantizer

Array = np.ndarray[Any, Any]
Leaf = Callable[[str, tuple[int, ...], Array], Tensor]
Build = Callable[[Leaf, str], Tensor]

ALL = sorted(quantized_types())
CODEBOOKS = [name for name in ALL if "grid_" in source("rows", (name,))]
K = 768  # three of the largest blocks
N = 20  # rows


def test_all_types_have_a_file() -> None:
    assert quantized_types() == {t.name for t in TYPES.values() if t.is_quantized}


@pytest.mark.parametrize("name", ["iq1", "iq2_s", "iq3_xxs"])
def test_codebooks_are_those_of_the_format(name: str) -> None:
    numbers = re.findall(r"0x[0-9a-f]+", constants(name))
    points = grid(name)
    raw = b"".join(int(n, 16).to_bytes(points.shape[1], "little") for n in numbers)
    assert raw == points.tobytes()


def test_types_may_share_a_codebook() -> None:
    text = source("rows", ("iq1_m", "iq1_s"))
    assert "GRID(" not in text
    assert text.count("#ifndef GRID_iq1\n#define GRID_iq1\n") == 2  # the second is left out


def blocks(type: str, n: int) -> Array:
    """n values in groups of 16 that differ in size."""
    rng = np.random.default_rng(n)
    quantize = quantizer(BY_NAME[type])
    assert quantize is not None
    x = rng.normal(size=(n // 16, 16)) * rng.random((n // 16, 1))
    return np.frombuffer(quantize(x.reshape(-1, K)), np.uint8)


def floats(n: int) -> Array:
    return np.random.default_rng(1).normal(size=n).astype(np.float32)


def computed(device: Any, build: Build, type: str) -> Array:
    """The values of the node that is built of leaves in the device's memory."""

    def leaf(name: str, ne: tuple[int, ...], data: Array) -> Tensor:
        t = Tensor(BY_NAME[name], ne)
        t.buffer = device.alloc(t.nbytes)
        t.buffer.write(0, data.view(np.uint8))
        return t

    graph = Graph()
    node = graph.build_forward_expand(build(leaf, type))
    Scheduler([device]).plan(graph).run()
    values = tensor_bytes(node).view(np.float16 if node.type is F16 else np.float32)
    return values.astype(np.float64)


def rows(leaf: Leaf, type: str) -> Tensor:
    ids = np.arange(N, dtype=np.int32)[::-1].copy()
    return ops.get_rows(leaf(type, (K, N), blocks(type, K * N)), leaf("i32", (N,), ids))


def floats_of(leaf: Leaf, type: str) -> Tensor:
    return ops.cast(leaf(type, (K, N), blocks(type, K * N)), F32)


def halves_of(leaf: Leaf, type: str) -> Tensor:
    return ops.cast(leaf(type, (K, N), blocks(type, K * N)), F16)


def product(columns: int) -> Build:
    def build(leaf: Leaf, type: str) -> Tensor:
        a = leaf(type, (K, N), blocks(type, K * N))
        return ops.mul_mat(a, leaf("f32", (K, columns), floats(K * columns)))

    return build


def experts(tokens: int) -> Build:
    """Two of three matrices for each token."""

    def build(leaf: Leaf, type: str) -> Tensor:
        a = leaf(type, (K, N, 3), blocks(type, K * N * 3))
        b = leaf("f32", (K, 1, tokens), floats(K * tokens))
        ids = np.arange(2 * tokens, dtype=np.int32) % 3
        return ops.mul_mat_id(a, b, leaf("i32", (2, tokens), ids))

    return build


@pytest.mark.parametrize("type", CODEBOOKS)
@pytest.mark.parametrize("build", [rows, floats_of, halves_of])
def test_values_are_exact(device: Any, build: Build, type: str) -> None:
    got, want = (computed(d, build, type) for d in (device, registry.device("ref")))
    np.testing.assert_array_equal(got, want)


# Each way of multiplying has a kernel for little and one for much.
@pytest.mark.parametrize(
    "build",
    [product(2), product(9), experts(3), experts(20)],
    ids=["mul_mat 2", "mul_mat 9", "mul_mat_id 3", "mul_mat_id 20"],
)
@pytest.mark.parametrize("type", ALL)
def test_products(device: Any, build: Build, type: str) -> None:
    got, want = (computed(d, build, type) for d in (device, registry.device("ref")))
    assert ((got - want) ** 2).sum() < 1e-11 * (want**2).sum()
