"""Several graphs in flight: values stay right however early copies arrive and late devices run."""

from __future__ import annotations

import numpy as np
import pytest

from ggml_py import ops
from ggml_py.backend import get_tensor, set_tensor
from ggml_py.graph import Graph
from ggml_py.plan import Plan
from ggml_py.plan.sched import Scheduler
from ggml_py.tensor import FLAG_INPUT, FLAG_OUTPUT, Tensor
from ggml_py.types import F32
from tests.support.devices import LazyDevice, MainMemoryDevice, TestDevice, given, random, weight

N = 6  # graphs in flight, more than there are copies


class Chain:
    """input -> device a -> device b, which keeps a row of each graph in its memory."""

    def __init__(self) -> None:
        self.a, self.b = LazyDevice("a"), LazyDevice("b")
        self.scheduler = Scheduler([self.a, self.b, MainMemoryDevice("host")], parallel=True)
        self.factors = weight(self.a, 4, seed=1), weight(self.b, 4, seed=2)
        self.rows = Tensor(F32, (4, N), name="rows")
        self.rows.buffer = self.b.alloc(self.rows.nbytes)

    def plan(self, i: int) -> tuple[Tensor, Plan]:
        x = given(4, name="x")
        y = ops.mul(x, self.factors[0]).set_name("y")
        graph = Graph()
        row = ops.view(self.rows, (4,), (), 4 * i)
        graph.build_forward_expand(ops.cpy(ops.mul(y, self.factors[1]), row))
        return x, self.scheduler.plan(graph)

    def run(self, again: bool = False) -> None:
        """N graphs with inputs 0, 1, ... one after another; or one plan, again and again."""
        x, planned = self.plan(0)
        for i in range(N):
            if i and not again:
                x, planned = self.plan(i)
            set_tensor(x, random(x, i))
            planned.run()

    def expected(self) -> np.ndarray:
        inputs = np.concatenate([random(given(4), i) for i in range(N)])[:, 0, 0]
        return inputs * get_tensor(self.factors[0])[0, 0] * get_tensor(self.factors[1])[0, 0]


def test_devices_work_while_the_host_goes_on() -> None:
    chain = Chain()
    chain.run()
    assert len(chain.b.waiting) == N  # nobody waited for the last device
    np.testing.assert_allclose(get_tensor(chain.rows)[0, 0], chain.expected(), rtol=1e-6)


def test_a_plan_may_run_again_at_once() -> None:
    chain = Chain()
    chain.run(again=True)
    np.testing.assert_allclose(get_tensor(chain.rows)[0, 0, 0], chain.expected()[-1], rtol=1e-6)


def test_copies_are_numbered_in_turn_and_pinned() -> None:
    chain = Chain()
    numbers = []
    for i in range(N):
        x, planned = chain.plan(i)
        sent = [copy for split in planned.splits for _, copy in split.inputs]
        numbers.append([copy.name for copy in sent])
        assert all(copy.flags & FLAG_INPUT and copy.flags & FLAG_OUTPUT for copy in sent)
        assert x.buffer not in [copy.buffer for copy in sent]
    assert numbers == [[f"a#x#{n}", f"b#y#{n}"] for n in (0, 1, 2, 3, 0, 1)]


def test_reserve_makes_room_for_all_copies() -> None:
    chain = Chain()
    x = given(4)
    graph = Graph()
    graph.build_forward_expand(ops.mul(ops.mul(x, chain.factors[0]), chain.factors[1]))
    sizes = chain.scheduler.reserve(graph)
    single = Scheduler(chain.scheduler.devices).reserve(graph)
    assert all(n > m for n, m in zip(sizes, single, strict=True))
    for i in range(N):
        chain.plan(i)
    assert chain.scheduler.compute_sizes() == sizes


@pytest.mark.parametrize("case", ["not asked for", "watched", "a device that cannot", "alone"])
def test_otherwise_there_is_one_copy(case: str) -> None:
    a, b, host = LazyDevice("a"), LazyDevice("b"), MainMemoryDevice("host")
    scheduler = {
        "not asked for": lambda: Scheduler([a, b, host]),
        "watched": lambda: Scheduler([a, b, host], watch=lambda _: None, parallel=True),
        "a device that cannot": lambda: Scheduler([a, TestDevice("c"), host], parallel=True),
        "alone": lambda: Scheduler([a], parallel=True),
    }[case]()
    assert scheduler.n_copies == 1
