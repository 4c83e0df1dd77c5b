"""ARGMAX gives the last of equal elements on every backend, as ggml's CPU backend does."""

from __future__ import annotations

import numpy as np
import pytest

from ggml_py import ops
from ggml_py.backend import CompileOptions, registry
from ggml_py.backend.values import get_tensor, set_tensor
from ggml_py.graph import Graph
from ggml_py.tensor import Tensor
from ggml_py.types import F32

ROWS = np.array(
    [[1, 5, 5, 2] * 100, [5, 1, 1, 1] * 100, [-np.inf] * 400, [3] + [1] * 399], np.float32
)


@pytest.mark.parametrize("name", ["cpu", "ref", "opencl0"])
def test_the_last_of_equal_elements(name: str) -> None:
    if name == "opencl0":
        pytest.importorskip("pyopencl")
    device = registry.device(name)
    x = Tensor(F32, ROWS.shape[::-1])
    graph = Graph()
    graph.build_forward_expand(ops.argmax(x))
    (node,) = graph.nodes
    for t in (x, node):
        t.buffer = device.alloc(t.nbytes)
    set_tensor(x, ROWS)
    device.compile([node], CompileOptions()).run()
    assert get_tensor(node).ravel().tolist() == [398, 396, 399, 0]
