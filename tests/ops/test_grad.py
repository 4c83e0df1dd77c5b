"""Gradients: every op that has one, against differences of values; and each planted fault is
caught."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from ggml_py import ops
from ggml_py.backend import registry, set_tensor
from ggml_py.errors import GGMLError, ShapeError
from ggml_py.gradients import all_gradients, build_backward_expand
from ggml_py.graph import Graph
from ggml_py.ops.registry import OPS
from ggml_py.plan.sched import Scheduler
from ggml_py.tensor import FLAG_INPUT, FLAG_OUTPUT, Tensor
from ggml_py.types import F16, F32
from ggml_ref.backend import RefDevice
from llama_py_tools.test_backend_ops import main
from llama_py_tools.test_backend_ops.case import Case, Leaves, uniform
from llama_py_tools.test_backend_ops.cases import all_cases
from llama_py_tools.test_backend_ops.grad import evaluate_grad, parameters
from llama_py_tools.test_backend_ops.run import Outcome, Status
from tests.support.installed import devices_or_skip

Build = Callable[[Leaves], Tensor]
WITH_GRADIENT = sorted({op for op, _ in all_gradients() if not OPS[op].view})


def size(case: Case) -> int:
    graph, leaves = case.graph()
    return sum(t.n_elements for t in (*leaves.inits, *graph.nodes))


def small(op: str, n: int) -> list[Case]:
    """The n smallest cases with a gradient of more than a few numbers."""
    found = []
    for case in sorted((c for c in all_cases() if c.op == op and not c.perf), key=size):
        try:
            found += [case] if size(case) > 12 and parameters(case) else []
        except GGMLError:
            continue
        if len(found) == n:
            break
    return found


@pytest.mark.parametrize("op", WITH_GRADIENT)
def test_every_gradient_is_the_slope(op: str) -> None:
    (device,) = devices_or_skip("cpu")
    told = [(str(c), evaluate_grad(c, device, RefDevice())) for c in small(op, 3)]
    assert any(o.status is Status.OK for _, o in told), told
    assert not [(c, o) for c, o in told if o.status is Status.FAIL]


def outcome(build: Build, device: RefDevice | None = None) -> Outcome:
    return evaluate_grad(Case("X", build, {}), device or RefDevice(), RefDevice())


def two_uses(new: Leaves) -> Tensor:
    x = new((5, 3))
    return ops.add(ops.mul(x, x), ops.scale(x, 0.5))


def window(new: Leaves) -> Tensor:
    x = new((8, 6, 2))
    part = ops.view_3d(x, 3, 4, 2, x.nb[1], x.nb[2], 8)
    return ops.mul(ops.cont(part), new((3, 4, 2)))


def turned(new: Leaves) -> Tensor:
    x = ops.permute(new((5, 4, 3, 2)), 2, 0, 3, 1)
    y = ops.reshape(ops.cont(x), *(x.ne[0] * x.ne[1], x.ne[2], x.ne[3]))
    return ops.mul(ops.cont(ops.transpose(y)), new((x.ne[2], x.ne[0] * x.ne[1], x.ne[3])))


def shared_matrices(new: Leaves) -> Tensor:
    return ops.mul_mat(new((6, 5, 2, 3)), new((6, 4, 4, 9)))


def quotient_of_rows(new: Leaves) -> Tensor:
    return ops.div(new((5, 4)), new((1, 4), init=uniform(0.5, 1.5)))


@pytest.mark.parametrize(
    "build", [two_uses, window, turned, shared_matrices, quotient_of_rows], ids=lambda b: b.__name__
)
def test_gradients_through_several_nodes(build: Build) -> None:
    assert outcome(build).status is Status.OK


@pytest.mark.parametrize("key", [("SUB", 1), ("MUL", 0), ("SILU", 0), ("MUL_MAT", 0), ("ROPE", 0)])
def test_a_wrong_gradient_is_caught(key: tuple[str, int], monkeypatch: pytest.MonkeyPatch) -> None:
    make = all_gradients()[key]
    assert make is not None
    monkeypatch.setitem(all_gradients(), key, lambda t, grad: ops.scale(make(t, grad), 1.002))
    device = RefDevice()
    failed = [evaluate_grad(c, device, device) for c in small(key[0], 3)]
    assert any(o.status is Status.FAIL and "MAA" in o.reason for o in failed), failed


def test_a_gradient_that_is_forgotten_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(all_gradients(), ("ADD", 1), None)
    assert outcome(lambda new: ops.add(new((4, 2)), new((4,)))).status is Status.FAIL


def test_kinks_are_left_out() -> None:
    def both(new: Leaves) -> Tensor:
        return ops.add(ops.relu(new((40, 40), init=uniform(-0.01, 0.01))), new((40, 40)))

    assert outcome(both).status is Status.OK
    steps = outcome(lambda new: ops.relu(new((99,), init=uniform(0.001, 0.005))))
    assert steps == Outcome(
        Status.NOT_SUPPORTED, "the result is a step function, so it has no gradient"
    )


def build(result: Tensor, *params: Tensor) -> list[Tensor | None]:
    graph = Graph()
    graph.build_forward_expand(result)
    return build_backward_expand(graph, result, Tensor(F32, result.ne), params)


def test_what_has_no_gradient_says_so() -> None:
    x, y = Tensor(F32, (4, 4), name="x"), Tensor(F32, (4, 4), name="y")
    with pytest.raises(GGMLError, match=r"no gradient of SOLVE_TRI\(x.*source 0; known gradients"):
        build(ops.solve_tri(x, y), x)
    with pytest.raises(GGMLError, match=r"ADD\(x.*overwrites its source"):
        build(ops.add(x, y, inplace=True), x)
    with pytest.raises(GGMLError, match=r"gradients need f32, got CPY\(x"):
        build(ops.cast(x, F16), x)
    with pytest.raises(ShapeError, match="rows must not overlap"):
        build(ops.cont(ops.view_2d(x, 4, 4, 4, 0)), x)
    assert build(ops.step(x), x) == [None]
    assert build(ops.sqr(y), x) == [None]


def test_values_of_a_small_network() -> None:
    """d sum(relu(w x)) / d w, in closed form."""
    rng = np.random.default_rng(1)
    w, x = rng.standard_normal((2, 3, 4)).astype(np.float32)
    tw, tx = Tensor(F32, (4, 3), name="w"), Tensor(F32, (4, 3), name="x")
    graph = Graph()
    loss = graph.build_forward_expand(ops.sum(ops.relu(ops.mul_mat(tw, tx))))
    one = Tensor(F32, (1,), name="one")
    (grad,) = build_backward_expand(graph, loss, one, [tw])
    assert grad is not None and grad.name == "grad for w"
    grad.flags |= FLAG_OUTPUT
    for t in (tw, tx, one):
        t.flags |= FLAG_INPUT
    plan = Scheduler([registry.device("ref")]).plan(graph)
    for t, values in ((tw, w), (tx, x), (one, np.ones(1, np.float32))):
        set_tensor(t, values)
    plan.run()
    expected = ((w @ x.T) > 0) @ x
    np.testing.assert_allclose(grad.numpy()[0, 0], expected, rtol=1e-6)


def test_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["grad", "-b", "ref", "-o", "SILU,SOLVE_TRI", "-p", r"\[(5,7|11,11)"]) == 0
    out = capsys.readouterr().out
    assert "  SILU(type=f32,ne_a=[5,7,11,13],v=0): OK\n" in out
    assert "not supported [no gradient of SOLVE_TRI" in out
