"""The sum of what several devices hold, left in each of them; devices at work at the same time."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import numpy as np
import pytest

from ggml_py import ops
from ggml_py.backend import CompileOptions, Device, Program, get_tensor, set_tensor
from ggml_py.graph import Graph
from ggml_py.plan import Plan
from ggml_py.plan.collective import Gather, Group
from ggml_py.plan.sched import Scheduler
from ggml_py.tensor import FLAG_OUTPUT, Tensor
from ggml_ref.backend import RefDevice
from tests.support.devices import TestDevice, given, random, weight
from tests.support.limits import SECONDS

N = 3


def devices(n: int = N) -> list[TestDevice]:
    return [TestDevice(f"d{i}") for i in range(n)]


def spread(
    group: Sequence[RefDevice], x: Tensor, receivers: Sequence[int] = (), missing: int = -1
) -> tuple[Graph, list[Tensor], Tensor]:
    """x times a weight of each device, the sum, and on each device what it then has, times two."""
    parts = [
        None if i == missing else ops.mul(x, weight(d, 4, seed=i)) for i, d in enumerate(group)
    ]
    total = ops.all_reduce(parts, receivers)
    graph = Graph()
    graph.build_forward_expand(total)
    seen = []
    for i, d in enumerate(group):
        if i != missing:
            twice = ops.mul(ops.reduce_part(total, i), weight(d, 4, seed=9))
            twice.flags |= FLAG_OUTPUT
            seen.append(graph.build_forward_expand(twice))
    return graph, seen, total


def run(planned: Plan, x: Tensor, seed: int) -> np.ndarray:
    values = random(x, seed)
    set_tensor(x, values)
    planned.run()
    return values


@pytest.mark.parametrize("together", [False, True])
@pytest.mark.parametrize("missing", [-1, 1, 2])
def test_every_device_has_the_sum(missing: int, together: bool) -> None:
    group, x = devices(), given(4, 2)
    graph, seen, _ = spread(group, x, missing=missing)
    planned = Scheduler([*group, TestDevice("host")], together=together).plan(graph)
    factor = sum(get_tensor(weight(d, 4, seed=i)) for i, d in enumerate(group) if i != missing)
    for seed in (5, 6):
        expected = run(planned, x, seed) * factor * get_tensor(weight(group[0], 4, seed=9))
        for t in seen:
            np.testing.assert_allclose(get_tensor(t), expected, rtol=1e-5)
    homes = [s.device.name for s in planned.splits if any(t.op == "MUL" for t in s.nodes)]
    assert homes[-len(seen) :] == [d.name for i, d in enumerate(group) if i != missing]


def test_receivers_are_not_added() -> None:
    group, x = devices(2), given(4)
    graph, seen, _ = spread(group, x, receivers=[0])
    values = run(Scheduler([*group, TestDevice("host")]).plan(graph), x, 5)
    expected = (
        values * get_tensor(weight(group[1], 4, seed=1)) * get_tensor(weight(group[1], 4, seed=9))
    )
    for t in seen:
        np.testing.assert_allclose(get_tensor(t), expected, rtol=1e-5)


class Counted:
    """Another way for parts to reach each other: as `Gather`, but it tells."""

    def __init__(self) -> None:
        self.groups: list[list[str]] = []
        self.runs = 0

    def all_reduce(self, tensor: Tensor, group: Group) -> Program:
        self.groups.append([d.name for d in group if d is not None])
        self.inner = Gather(CompileOptions()).all_reduce(tensor, group)
        return self

    def run(self) -> None:
        self.runs += 1
        self.inner.run()


def test_another_transport_may_serve() -> None:
    group, x, way = devices(2), given(4), Counted()
    graph, seen, _ = spread(group, x)
    planned = Scheduler([*group, TestDevice("host")], all_reduce=way).plan(graph)
    run(planned, x, 5)
    run(planned, x, 6)
    assert way.groups == [["d0", "d1"]]
    assert way.runs == 2
    assert len({get_tensor(t).tobytes() for t in seen}) == 1


class Meeting(TestDevice):
    """Its MUL waits until another device is at one too."""

    def __init__(self, name: str, barrier: threading.Barrier) -> None:
        super().__init__(name)
        self.barrier = barrier

    def compile(self, nodes: list[Tensor], options: CompileOptions) -> Program:
        program = super().compile(nodes, options)
        if any(t.op == "MUL" for t in nodes):
            program.steps.insert(0, (lambda _: self.barrier.wait(SECONDS), nodes[0]))
        return program


def test_devices_run_at_the_same_time() -> None:
    barrier = threading.Barrier(2)
    group: list[Device] = [Meeting("d0", barrier), Meeting("d1", barrier)]
    x = given(4)
    graph, seen, _ = spread(group, x)  # type: ignore[arg-type]
    planned = Scheduler([*group, TestDevice("host")], together=True).plan(graph)
    run(planned, x, 5)
    assert len({get_tensor(t).tobytes() for t in seen}) == 1


def test_what_fails_on_one_device_is_raised_when_all_have_ended() -> None:
    barrier = threading.Barrier(2)
    group: list[Device] = [Meeting("d0", barrier), Meeting("d1", barrier)]
    x = given(4)
    graph, _, _ = spread(group, x)  # type: ignore[arg-type]
    planned = Scheduler([*group, TestDevice("host")], together=True).plan(graph)
    barrier.abort()
    with pytest.raises(threading.BrokenBarrierError):
        run(planned, x, 5)
    barrier.reset()
    run(planned, x, 6)  # the plan stays usable
