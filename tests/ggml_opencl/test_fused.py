"""Steps of several nodes: the same values as node by node, fewer kernels, nothing built late."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ggml_py import ops
from ggml_py.backend import CompileOptions, get_tensor, set_tensor
from ggml_py.graph import Graph
from ggml_py.plan.sched import Scheduler
from ggml_py.tensor import FLAG_OUTPUT, Tensor
from ggml_py.types import BY_NAME, F16
from tests.support import fused_graphs as graphs
from tests.support.devices import given
from tests.support.fused_graphs import Build, Shapes, error
from tests.support.states_to_cache import Made


def to_rows(**more: Tensor) -> Tensor:
    return graphs.product_to_rows(**more, type=F16)


def to_quantized_rows(**more: Tensor) -> Tensor:
    return graphs.product_to_rows(**more, type=BY_NAME["q8_0"])


def reglu(**more: Tensor) -> Tensor:
    return graphs.gated_unit("reglu", **more)


def geglu(**more: Tensor) -> Tensor:
    return graphs.gated_unit("geglu", **more)


def swiglu(**more: Tensor) -> Tensor:
    return graphs.gated_unit("swiglu", **more)


def experts(**more: Tensor) -> Tensor:
    return graphs.gated_experts(**more, n_used=2)


def router(**more: Tensor) -> Tensor:
    return graphs.router(**more, n_used=5)


def turned_rows(x: Tensor, tokens: Tensor, cache: Tensor) -> Tensor:
    return graphs.heads_to_rows(graphs.turned(ops.neg(x), tokens, mode=0), tokens, cache)


def normed_rows(
    x: Tensor, w: Tensor, tokens: Tensor, cache: Tensor, factors: Tensor | None = None
) -> Tensor:
    y = graphs.normed_and_turned(x, w, tokens, factors=factors, n_offs=2)
    return graphs.heads_to_rows(y, tokens, cache)


def normed_quantized_rows(x: Tensor, w: Tensor, tokens: Tensor, cache: Tensor) -> Tensor:
    y = graphs.normed_and_turned(x, w, tokens)
    return graphs.heads_to_rows(y, tokens, cache, BY_NAME["q8_0"])


PRODUCT: Shapes = {"w": (65, 37, 2), "x": (65, 3, 4)}
SQUARE: Shapes = {"w": (96, 96), "x": (96, 1)}
ROWS: Shapes = {"w": (40, 64), "x": (40, 3), "ids": (3,), "cache": (64, 7)}
UNIT: Shapes = {"w": (70, 37), "v": (70, 37), "x": (70, 2)}
EXPERTS: Shapes = {"w": (70, 37, 5), "v": (70, 37, 5), "x": (70, 1, 3), "scores": (5, 3)}
HEADS: Shapes = {"x": (40, 3, 5), "tokens": (5,), "cache": (120, 7)}
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
    "mean and weight": (
        graphs.mean_weight_and_bias, {"x": (300, 5), "w": (300,), "b": (300,)},
        ["NORM+MUL+ADD"],
    ),
    "L2 norm and gate": (
        graphs.l2_norm_and_gate, {"x": (33, 5), "z": (33, 5)}, ["L2_NORM+SILU+MUL"]
    ),
    "product reshaped": (
        graphs.product_in_heads, {"w": (65, 36), "x": (65, 3), "b": (4, 9)},
        ["MUL_MAT+ADD+SOFTPLUS+MUL"],
    ),
    "convolution": (graphs.conv_and_silu, CONV, ["NEG", "SSM_CONV+SILU"]),
    "convolution, reshaped": (graphs.conv_reshaped_and_silu, CONV, ["SSM_CONV+SILU"]),
    "convolution and bias": (
        graphs.conv_bias_and_silu, {**CONV, "b": (33,)}, ["SSM_CONV+ADD+SILU"]
    ),
    "product and sum": (
        graphs.product_and_sum, {**PRODUCT, "y": (37, 3, 4)}, ["MUL_MAT+ADD"]
    ),
    "sum and product": (
        graphs.sum_and_product, {**PRODUCT, "y": (37, 3, 4)}, ["MUL_MAT+ADD"]
    ),
    "product and bias": (graphs.product_and_sum, {**PRODUCT, "y": (37,)}, ["MUL_MAT+ADD"]),
    "product and its columns": (graphs.product_and_its_columns, SQUARE, ["NEG", "MUL_MAT+ADD"]),
    "product of many columns": (
        graphs.product_and_sum, {"w": (65, 37), "x": (65, 5), "y": (37, 5)}, ["MUL_MAT", "ADD"]
    ),
    "product repeated": (
        graphs.sum_and_product, {"w": (65, 37), "x": (65, 1), "y": (37, 5)}, ["MUL_MAT", "ADD"]
    ),
    "product to rows": (to_rows, ROWS, ["ARGSORT", "CPY", "MUL_MAT+SET_ROWS"]),
    "product to quantized rows": (
        to_quantized_rows, ROWS, ["MUL_MAT", "ARGSORT", "CPY", "SET_ROWS"]
    ),
    "REGLU": (reglu, UNIT, ["MUL_MAT+REGLU"]),
    "GEGLU": (geglu, UNIT, ["MUL_MAT+GEGLU"]),
    "SWIGLU": (swiglu, UNIT, ["MUL_MAT+SWIGLU"]),
    "SWIGLU of many columns": (
        swiglu, {**UNIT, "x": (70, 5)}, ["MUL_MAT", "MUL_MAT", "SWIGLU"]
    ),
    "experts' units": (experts, EXPERTS, ["ARGSORT", "MUL_MAT_ID+SWIGLU"]),
    "router": (
        router, {"logits": (70, 3), "table": (70, 3)},
        ["SOFT_MAX+ARGSORT+GET_ROWS+SUM_ROWS+CLAMP+DIV", "GET_ROWS", "MUL"],
    ),
    "router with a bias": (
        router, {"logits": (70, 3), "table": (70, 3), "bias": (70,)},
        ["SIGMOID+ADD+ARGSORT+GET_ROWS+SUM_ROWS+CLAMP+DIV", "GET_ROWS", "MUL"],
    ),
    "turned to rows": (
        turned_rows, HEADS, ["NEG", "ARGSORT", "ARGSORT", "CPY", "ROPE+SET_ROWS"]
    ),
    "norm, turned": (
        graphs.normed_and_turned, {"x": (40, 3, 5), "w": (40,), "tokens": (5,)},
        ["NEG", "ARGSORT", "RMS_NORM+MUL+ROPE"],
    ),
    "norm, turned, to rows": (
        normed_rows, {**HEADS, "w": (40,)},
        ["NEG", "ARGSORT", "ARGSORT", "CPY", "RMS_NORM+MUL+ROPE+SET_ROWS"],
    ),
    "norm, turned with factors, to rows": (
        normed_rows, {**HEADS, "w": (40,), "factors": (16,)},
        ["NEG", "ARGSORT", "ARGSORT", "CPY", "RMS_NORM+MUL+ROPE+SET_ROWS"],
    ),
    "norm, turned, to quantized rows": (
        normed_quantized_rows, {"x": (64, 2, 5), "w": (64,), "tokens": (5,), "cache": (128, 7)},
        ["NEG", "ARGSORT", "RMS_NORM+MUL+ROPE", "ARGSORT", "CPY", "SET_ROWS"],
    ),
    "sum of experts": (graphs.expert_sum, {"x": (50, 4, 9), "w": (1, 4, 9)}, ["SCALE", "MUL+ADD"]),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_the_same_as_node_by_node(name: str, device: Any) -> None:
    build, shapes, steps = CASES[name]
    assert error(build, shapes, device, steps) <= 1e-6


def test_a_value_read_twice_stays(device: Any) -> None:
    steps = ["RMS_NORM", "MUL+ADD"]
    assert error(graphs.norm_read_twice, {"x": (32, 3), "w": (32,)}, device, steps) <= 1e-6


def test_half_precision_ends_a_chain(device: Any) -> None:
    def build(x: Tensor, w: Tensor) -> Tensor:
        half = ops.neg(ops.cast(w, F16))
        return ops.sqr(ops.mul(ops.rms_norm(x, 1e-5), half))

    steps = ["CPY", "NEG", "RMS_NORM+MUL+SQR"]
    assert error(build, {"x": (32, 3), "w": (32,)}, device, steps) <= 1e-6


def test_a_chain_reads_only_so_many_tensors(device: Any) -> None:
    def build(**terms: Tensor) -> Tensor:
        total, *others = terms.values()
        for t in others:
            total = ops.add(total, t)
        return total

    shapes: Shapes = {f"x{i}": (33, 2) for i in range(12)}
    assert error(build, shapes, device, ["ADD", "ADD"]) <= 1e-6


def test_repeated_values_are_made_where_they_are_read(device: Any) -> None:
    """The gate has one value a row, and is itself repeated from one."""

    def build(x: Tensor, g: Tensor, one: Tensor) -> Tensor:
        gate = ops.sigmoid(ops.add(g, one))
        return ops.mul(ops.sub(x, ops.scale(x, 3.0)), gate)

    shapes: Shapes = {"x": (33, 5, 2), "g": (1, 5, 2), "one": (1,)}
    assert error(build, shapes, device, ["SCALE+SUB+ADD+SIGMOID+MUL"]) <= 1e-6


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
    assert [t.kernel for t in times] == ["rms_norm_chain"]
    assert built == []


def short_convolution(device: Any, n_tokens: int, fuse: bool) -> tuple[list[Any], list[str]]:
    """The result and the cache that inputs come from and go to; what was run."""
    new, channels, size = Made(n_tokens, 1, [3]), 33, 99
    cache, given = new.cache(size), new(channels, n_tokens, 1)
    before = ops.reshape(new.started(cache), 3, channels, 1)
    joined = ops.concat(before, ops.transpose(given), 0)
    window = ops.view(joined, (3, channels, 1), offset=n_tokens)
    kept = ops.cpy(window, ops.view(cache, (size, 1), (size,), 3 * size))
    y = ops.silu(ops.ssm_conv(joined, new(4, channels)))
    y.flags |= FLAG_OUTPUT
    graph = Graph()
    for t in (kept, y):
        graph.build_forward_expand(t)
    plan = Scheduler([device], CompileOptions(fuse=fuse)).plan(graph)
    for t, values in new.values.values():
        set_tensor(t, values)
    plan.run()
    (split,) = plan.splits
    return [get_tensor(y), get_tensor(cache)], [graphs.name(s) for s in split.steps]


@pytest.mark.parametrize("n_tokens", [1, 2, 5])
def test_a_short_convolution_keeps_its_inputs(n_tokens: int, device: Any) -> None:
    """Of one token it reads the row of the cache that it writes."""
    steps = ["CONCAT+CPY+SSM_CONV+SILU"]
    steps = ["GET_ROWS+" + steps[0]] if n_tokens == 1 else ["GET_ROWS", *steps]
    expected, _ = short_convolution(device, n_tokens, fuse=False)
    found, run = short_convolution(device, n_tokens, fuse=True)
    assert run == steps
    for a, b in zip(expected, found, strict=True):
        np.testing.assert_allclose(b, a, rtol=1e-5, atol=1e-6)
