"""Steps of several nodes: the same values as node by node, fewer kernels, nothing built late."""

from __future__ import annotations

from typing import Any

import pytest

from ggml_py import ops
from ggml_py.backend import CompileOptions
from ggml_py.graph import Graph
from ggml_py.sched import Scheduler
from ggml_py.tensor import Tensor
from ggml_py.types import F16
from tests import fused_graphs as graphs
from tests.devices import given
from tests.fused_graphs import Build, Shapes, error

CONV: Shapes = {"x": (3 + 5, 33, 2), "c": (4, 33)}
CASES: dict[str, tuple[Build, Shapes, list[str]]] = {
    "norm and weight": (
        graphs.norm_and_weight, {"x": (33, 5), "w": (33,)}, ["NEG", "RMS_NORM+MUL"]
    ),
    "norm and repeated weights": (
        graphs.norm_and_weight, {"x": (65, 6, 2), "w": (65, 3)}, ["NEG", "RMS_NORM+MUL"]
    ),
    "norm, weight and residual": (
        graphs.norm_weight_and_residual, {"x": (300, 5), "w": (300,)}, ["NEG", "RMS_NORM+MUL+ADD"]
    ),
    "norm and factor": (graphs.norm_and_factor, {"x": (64, 7)}, ["RMS_NORM+SCALE"]),
    "convolution": (graphs.conv_and_silu, CONV, ["NEG", "SSM_CONV+SILU"]),
    "convolution, reshaped": (graphs.conv_reshaped_and_silu, CONV, ["SSM_CONV+SILU"]),
    "convolution and bias": (
        graphs.conv_bias_and_silu, {**CONV, "b": (33,)}, ["SSM_CONV+ADD+SILU"]
    ),
    "sum of experts": (graphs.expert_sum, {"x": (50, 4, 9), "w": (1, 4, 9)}, ["SCALE", "MUL+ADD"]),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_the_same_as_node_by_node(name: str, device: Any) -> None:
    build, shapes, steps = CASES[name]
    assert error(build, shapes, device, steps) <= 1e-6


def test_a_value_read_twice_stays(device: Any) -> None:
    steps = ["RMS_NORM", "MUL", "ADD"]
    assert error(graphs.norm_read_twice, {"x": (32, 3), "w": (32,)}, device, steps) == 0


def test_half_precision_is_left_to_single_nodes(device: Any) -> None:
    def build(x: Tensor, w: Tensor) -> Tensor:
        return ops.mul(ops.rms_norm(x, 1e-5), ops.cast(w, F16))

    steps = ["RMS_NORM", "CPY", "MUL"]
    assert error(build, {"x": (32, 3), "w": (32,)}, device, steps) == 0


def test_a_step_is_one_kernel_and_is_built_when_memory_is_reserved(device: Any) -> None:
    def graph() -> Graph:
        made = Graph()
        made.build_forward_expand(graphs.norm_and_factor(given(96, 3)))
        return made

    built: list[str] = []
    progress = CompileOptions(progress=lambda done, total, what: built.append(what))
    scheduler = Scheduler([device], progress)
    scheduler.reserve(graph())
    built.clear()
    plan = scheduler.plan(graph())
    with device.profiling() as times:
        plan.run()
    assert [t.kernel for t in times] == ["rms_norm_scale"]
    assert built == []
