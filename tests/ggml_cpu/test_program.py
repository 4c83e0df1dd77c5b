"""Programs: where they are cut, and what a step has of the one before."""

from __future__ import annotations

import signal
from typing import Any

import numpy as np
import pytest

from ggml_cpu import program
from ggml_cpu.executor import Executor
from ggml_cpu.program import SLICE_SECONDS, estimate
from ggml_py import ops
from ggml_py.backend import get_tensor, registry, set_tensor
from ggml_py.graph import Graph
from ggml_py.machine.shield import Shield
from ggml_py.plan.sched import Scheduler
from ggml_py.tensor import FLAG_OUTPUT, Tensor
from ggml_py.types import BY_NAME


def test_a_row_written_into_a_cache_counts_as_a_row() -> None:
    row, at = Tensor(ne=(1024, 1)), Tensor(BY_NAME["i64"], (1,))
    seconds = [
        estimate(ops.set_rows(Tensor(BY_NAME["f16"], (1024, n)), row, at)) for n in (8, 131072)
    ]
    assert seconds[0] == seconds[1] < SLICE_SECONDS / 100


def test_only_the_rows_and_matrices_that_are_chosen_count() -> None:
    few, wide = Tensor(BY_NAME["i32"], (2,)), Tensor(BY_NAME["i32"], (2, 1))
    rows = [estimate(ops.get_rows(Tensor(ne=(1 << 19, n)), few)) for n in (2, 64)]
    x = Tensor(ne=(1024, 1))
    experts = [estimate(ops.mul_mat_id(Tensor(ne=(1024, 512, n)), x, wide)) for n in (2, 64)]
    assert rows[0] == rows[1] < SLICE_SECONDS / 100
    assert experts[0] == experts[1] < SLICE_SECONDS / 100


def test_columns_prepared_for_another_cut_of_them_are_prepared_again() -> None:
    """Two products of one source: its matrices are columns of one product, or of two."""
    x, one, two = Tensor(ne=(64, 66, 2)), Tensor(ne=(64, 20)), Tensor(ne=(64, 20, 2))
    products = [ops.mul_mat(a, x) for a in (one, two, one)]
    graph = Graph()
    for t in products:
        t.flags |= FLAG_OUTPUT
        graph.build_forward_expand(t)
    device, rng = registry.device("cpu"), np.random.default_rng(1)
    plan = Scheduler([device]).plan(graph)
    for t in (x, one, two):
        set_tensor(t, rng.standard_normal(t.ne[::-1]).astype(np.float32))
    with device.profiling() as times:
        plan.run()
    names = [t.kernel.split("_")[0] for t in times]
    assert names == ["tiles", "mul", "tiles", "mul", "mul"]  # both are kept
    for a, t in zip((one, two, one), products, strict=True):
        expected = get_tensor(x) @ get_tensor(a).swapaxes(2, 3)
        np.testing.assert_allclose(get_tensor(t), expected, atol=1e-4)


def test_others_run_in_the_pauses_of_a_program(monkeypatch: pytest.MonkeyPatch) -> None:
    """The result is that of a run, whatever runs in between on the same threads."""
    monkeypatch.setattr(program, "SLICE_SECONDS", 0.0)  # a pause after each node
    plans, ends, inputs = [], [], []
    for seed in (1, 2):
        rng = np.random.default_rng(seed)
        cur = x = Tensor(ne=(32, 5))
        for _ in range(6):
            w = Tensor(ne=(32, 32))
            cur = ops.mul_mat(w, ops.relu(cur))
            inputs.append((w, rng.standard_normal((32, 32)).astype(np.float32)))
        inputs.append((x, rng.standard_normal((5, 32)).astype(np.float32)))
        cur.flags |= FLAG_OUTPUT
        graph = Graph()
        graph.build_forward_expand(cur)
        plans.append(Scheduler([registry.device("cpu")]).plan(graph))
        ends.append(cur)
    for t, values in inputs:
        set_tensor(t, values)
    expected = []
    for plan, end in zip(plans, ends, strict=True):
        plan.run()
        expected.append(get_tensor(end).copy())
    set_tensor(inputs[-1][0], np.ones((5, 32), np.float32))
    n = 0
    for n, _ in enumerate(plans[0].run_in_parts(), 1):
        plans[1].run()
        set_tensor(inputs[-1][0], np.full((5, 32), n, np.float32))
    assert n >= 6
    assert (get_tensor(ends[0]) == expected[0]).all()
    set_tensor(inputs[-1][0], inputs[-1][1])
    for _ in plans[1].run_in_parts():
        plans[0].run()
    assert (get_tensor(ends[1]) == expected[1]).all()


def test_a_long_program_ends_at_the_slice_at_which_ctrl_c_comes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(program, "SLICE_SECONDS", 0.0)  # a slice for each node
    graph, x = Graph(), Tensor(ne=(64, 8))
    graph.build_forward_expand(ops.soft_max(ops.norm(ops.mul_mat(x, x), 1e-5)))
    plan, ran = Scheduler([registry.device("cpu")]).plan(graph), list[int]()
    set_tensor(x, np.ones((1, 1, 8, 64), np.float32))
    plan.run()
    run = Executor.run

    def interrupted(self: Executor, *args: Any) -> None:
        run(self, *args)
        ran.append(1)
        signal.raise_signal(signal.SIGINT)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt), Shield():
        patch.setattr(Executor, "run", interrupted)
        plan.run()
    assert ran == [1]
    plan.run()
