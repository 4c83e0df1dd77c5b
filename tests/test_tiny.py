"""A tour in five steps: tensors are lazy, graphs are data, devices run them, models are graphs."""

from __future__ import annotations

import numpy as np

from ggml_py import ops
from ggml_py.backend import get_tensor, registry, set_tensor
from ggml_py.backend.null import NullDevice
from ggml_py.graph import Graph
from ggml_py.plan.sched import Scheduler
from ggml_py.tensor import FLAG_INPUT, FLAG_OUTPUT, Tensor
from ggml_py.types import F32


def two_layers() -> tuple[Tensor, Tensor, Tensor, Graph]:
    """y = silu(w x): shapes are in ggml's order, the fastest dimension first."""
    w = Tensor(F32, (4, 3), name="w")  # 3 rows of 4
    x = Tensor(F32, (4, 2), name="x")  # 2 tokens of 4
    x.flags |= FLAG_INPUT
    y = ops.silu(ops.mul_mat(w, x)).set_name("y")  # [3, 2]
    y.flags |= FLAG_OUTPUT
    graph = Graph()
    graph.build_forward_expand(y)
    return w, x, y, graph


def test_building_computes_nothing() -> None:
    w, _, y, graph = two_layers()
    assert y.ne == (3, 2, 1, 1)
    assert y.op == "SILU"
    assert y.buffer is None
    assert [t.name for t in graph.nodes] == ["node_0", "y"]
    assert graph.leafs[0] is w


def test_a_plan_needs_no_device() -> None:
    *_, y, graph = two_layers()
    Scheduler([NullDevice()]).plan(graph)
    assert y.buffer is not None


def test_devices_compute() -> None:
    rng = np.random.default_rng(0)
    weights, tokens = rng.standard_normal((3, 4)), rng.standard_normal((2, 4))
    expected = tokens @ weights.T
    expected = expected / (1 + np.exp(-expected))
    for name in ("ref", "cpu"):
        w, x, y, graph = two_layers()
        plan = Scheduler([registry.device(name)]).plan(graph)
        set_tensor(w, weights.astype(np.float32))
        set_tensor(x, tokens.astype(np.float32))
        plan.run()
        assert np.allclose(get_tensor(y)[0, 0], expected, atol=1e-6)


def test_a_plan_runs_again_with_other_inputs() -> None:
    w, x, y, graph = two_layers()
    plan = Scheduler([registry.device("cpu")]).plan(graph)
    set_tensor(w, np.ones((3, 4), np.float32))
    results = []
    for value in (0.0, 1.0):
        set_tensor(x, np.full((2, 4), value, np.float32))
        plan.run()
        results.append(get_tensor(y).copy())
    assert np.all(results[0] == 0)
    assert np.allclose(results[1], 4 / (1 + np.exp(-4.0)))
