"""The check mode finds the node that a device computes wrong, and lets right ones pass."""

from __future__ import annotations

import numpy as np
import pytest

from ggml_py import ops
from ggml_py.backend import Bytes, get_tensor, set_tensor
from ggml_py.backend.registry import device
from ggml_py.errors import GGMLError
from ggml_py.graph import Graph
from ggml_py.inspection.check import Checker, CheckFailed
from ggml_py.plan.sched import Scheduler
from ggml_py.tensor import FLAG_WEIGHT, Tensor
from ggml_py.types import BY_NAME, I32
from ggml_ref.backend import RefDevice
from ggml_ref.quants import quantizer
from tests.support.devices import TestDevice, WrongDevice, given, random, weight

Q8_0 = BY_NAME["q8_0"]


def checked_run(where: list[RefDevice], checker: Checker, op: str = "") -> None:
    """y = acc(x * w, x) on the first device."""
    x = given(4, 2, name="x")
    y = ops.mul(x, weight(where[0], 4)).set_name("product")
    z = ops.acc(y, x, *y.nb[1:], 0).set_name("sum")
    graph = Graph()
    graph.build_forward_expand(ops.scale(z, 2.0))
    plan = Scheduler(where, check=checker).plan(graph)
    set_tensor(x, random(x, 3))
    plan.run()


def test_right_nodes_pass() -> None:
    checker = Checker(device("ref"))
    checked_run([TestDevice("gpu"), TestDevice("host")], checker)
    assert (checker.n_checked, checker.n_skipped) == (3, 0)


@pytest.mark.parametrize(("op", "node"), [("ACC", "sum"), ("MUL", "product")])
def test_the_first_wrong_node_is_named_with_its_values(op: str, node: str) -> None:
    wrong = WrongDevice("gpu", op)
    with pytest.raises(CheckFailed, match=rf"^{node}: {op}\(.*gpu differs from ref: NMSE") as e:
        checked_run([wrong, TestDevice("host")], Checker(device("ref")))
    assert isinstance(e.value, GGMLError)
    assert "worst at [3, 1, 0, 0]: expected" in str(e.value)


def test_what_the_other_device_cannot_run_is_skipped() -> None:
    checker = Checker(TestDevice("other", "ACC"))
    checked_run([TestDevice("gpu")], checker)
    assert (checker.n_checked, checker.n_skipped) == (2, 1)


def test_weights_in_a_layout_are_checked_by_their_plain_bytes() -> None:
    cpu = device("cpu")
    x, w = given(64, 2), Tensor(Q8_0, (64, 32), name="w")
    quantize = quantizer(Q8_0)
    assert quantize is not None
    plain = np.frombuffer(quantize(random(w, 1)[0, 0]), np.uint8)
    w.flags |= FLAG_WEIGHT
    w.buffer = cpu.alloc(w.nbytes)
    w.buffer.write(0, plain)
    cpu.prepare_weight(w, ("MUL_MAT",))
    graph = Graph()
    graph.build_forward_expand(ops.mul_mat(w, x))
    checker = Checker(device("ref"), {"w": plain}.get)
    plan = Scheduler([cpu], check=checker).plan(graph)
    set_tensor(x, random(x, 2))
    plan.run()
    assert w.layout
    assert (checker.n_checked, checker.n_skipped) == (1, 0)


class Planting(Checker):
    """Makes a row or a column of each result 1 % too large before it is compared."""

    def __init__(self, axis: int | None) -> None:
        super().__init__(device("ref"), lambda name: self.plain.get(name))
        self.axis, self.plain = axis, dict[str, Bytes]()

    def compare(self, node: Tensor, twin: Tensor, by: str) -> None:
        if self.axis is not None:
            values = get_tensor(node).astype(np.float32)
            values[(..., 3, slice(None)) if self.axis else (..., 3)] *= 1.01
            set_tensor(node, values)
        super().compare(node, twin, by)


def product(checker: Planting, kind: str, outlier: float, backend: str = "cpu") -> None:
    """Of 64 columns, in each of which one value is an outlier."""
    where, rng = device(backend), np.random.default_rng(3)
    type, x = BY_NAME[kind], given(512, 64)
    w = Tensor(type, (512, 96), name="w")
    quantize = quantizer(type)
    rows = rng.standard_normal((96, 512)).astype(np.float32)
    checker.plain["w"] = np.frombuffer(quantize(rows) if quantize else rows, np.uint8)
    w.flags |= FLAG_WEIGHT
    w.buffer = where.alloc(w.nbytes)
    w.buffer.write(0, checker.plain["w"])
    where.prepare_weight(w, ("MUL_MAT",))
    graph = Graph()
    graph.build_forward_expand(ops.mul_mat(w, x))
    plan = Scheduler([where], check=checker).plan(graph)
    values = rng.standard_normal((1, 1, 64, 512)).astype(np.float32)
    values[..., 7] = outlier
    set_tensor(x, values)
    plan.run()


KINDS = ["q4_0", "q4_1", "q8_0", "q4_K", "q6_K", "q2_K", "iq4_xs", "mxfp4", "f16", "bf16", "f32"]


@pytest.mark.parametrize("outlier", [1.0, 60.0, 1000.0])
@pytest.mark.parametrize("kind", KINDS)
def test_an_outlier_is_no_error(kind: str, outlier: float) -> None:
    """The step of its block is as large as other values, and the product is right all the same."""
    product(Planting(None), kind, outlier)


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("outlier", [1.0, 60.0])
@pytest.mark.parametrize("kind", KINDS)
def test_a_hundredth_in_one_row_or_column_is_found(kind: str, outlier: float, axis: int) -> None:
    with pytest.raises(CheckFailed, match=r"NMSE|(row|column) .* is off by"):
        product(Planting(axis), kind, outlier)


@pytest.mark.parametrize("kind", ["q4_1", "q5_1"])
def test_sums_of_activations_may_be_halves(kind: str) -> None:
    """Minimum times sum of a block outweighs the result, and devices keep the sum as float16."""
    checker, type = Planting(None), BY_NAME[kind]
    where, rng = device("cpu"), np.random.default_rng(4)
    w, x = Tensor(type, (512, 96), name="w"), given(512, 8)
    rows = rng.standard_normal((96, 16, 32)).astype(np.float32)
    rows -= rows.mean(-1, keepdims=True)
    quantize = quantizer(type)
    assert quantize is not None
    checker.plain["w"] = np.frombuffer(quantize(rows.reshape(96, 512)), np.uint8)
    w.flags |= FLAG_WEIGHT
    w.buffer = where.alloc(w.nbytes)
    w.buffer.write(0, checker.plain["w"])
    where.prepare_weight(w, ("MUL_MAT",))
    graph = Graph()
    graph.build_forward_expand(ops.mul_mat(w, x))
    plan = Scheduler([where], check=checker).plan(graph)
    set_tensor(x, (3 + 0.02 * rng.standard_normal((1, 1, 8, 512))).astype(np.float32))
    plan.run()
    assert checker.n_checked == 1
    checker.axis = 1
    with pytest.raises(CheckFailed, match="row"):
        plan.run()


def rotated(checker: Checker, position: int) -> None:
    x, at = given(128, 4, 40), given(40)
    at.type = I32
    y = ops.rope_ext(x, at, None, 128, 2, 0, 1e4, 1.0, 0.0, 1.0, 32.0, 1.0)
    graph = Graph()
    graph.build_forward_expand(y)
    plan = Scheduler([device("cpu")], check=checker).plan(graph)
    set_tensor(x, random(x, 3))
    set_tensor(at, np.arange(position - 39, position + 1, dtype=np.int32))
    plan.run()


@pytest.mark.parametrize("position", [39, 32_000, 131_072, 1_000_003])
def test_far_positions_are_no_error(position: int) -> None:
    rotated(Planting(None), position)
    with pytest.raises(CheckFailed):
        rotated(Planting(1), position)
