"""The check mode finds the node that a device computes wrong, and lets right ones pass."""

from __future__ import annotations

import numpy as np
import pytest

from ggml_py import ops
from ggml_py.backend import set_tensor
from ggml_py.check import Checker, CheckFailed
from ggml_py.errors import GGMLError
from ggml_py.graph import Graph
from ggml_py.registry import device
from ggml_py.sched import Scheduler
from ggml_py.tensor import FLAG_WEIGHT, Tensor
from ggml_py.types import BY_NAME
from ggml_ref.backend import RefDevice
from ggml_ref.quants import quantizer
from tests.devices import TestDevice, WrongDevice, given, random, weight

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
