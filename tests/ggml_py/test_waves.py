"""Parts of a graph that run at the same time: no two of them touch the same bytes, unless both only
read."""

from __future__ import annotations

import random as rand
from collections.abc import Callable
from itertools import combinations

import numpy as np
import pytest

from ggml_py import ops
from ggml_py.backend import get_tensor, set_tensor
from ggml_py.graph import Graph
from ggml_py.opspec import OPS
from ggml_py.plan import PlanInWaves, Split
from ggml_py.plan.sched import Scheduler
from ggml_py.tensor import FLAG_OUTPUT, Tensor
from tests.support.devices import MainMemoryDevice, TestDevice, given, random, weight

Range = tuple[int, int, int]  # id of a buffer, from, to


def bytes_of(t: Tensor) -> Range:
    return id(t.buffer), t.offset, t.offset + t.nbytes


def touched(splits: list[Split]) -> tuple[list[Range], list[Range]]:
    """What splits of one device read, and write."""
    reads, writes = [], []
    for split in splits:
        reads += [bytes_of(source) for source, _ in split.inputs]
        writes += [bytes_of(copy) for _, copy in split.inputs]
        for node in split.nodes:
            if not OPS[node.op].view:
                reads += [bytes_of(s) for s in node.src if s is not None]
                writes.append(bytes_of(node))
                writes += [bytes_of(s) for s in node.src if s is not None and node.op == "REDUCE"]
    return reads, writes


def overlap(some: list[Range], others: list[Range]) -> bool:
    return any(a[0] == b[0] and a[1] < b[2] and b[1] < a[2] for a in some for b in others)


def clashes(plan: PlanInWaves) -> list[int]:
    """Waves in which one device writes what another touches."""
    found = []
    for i, wave in enumerate(plan.waves):
        splits = [plan.splits[k] for k in wave]
        names = dict.fromkeys(s.device.name for s in splits)
        each = [touched([s for s in splits if s.device.name == name]) for name in names]
        for (reads, writes), (others_read, others_write) in combinations(each, 2):
            if overlap(writes, others_read + others_write) or overlap(others_write, reads):
                found.append(i)
    return found


def branches(rng: rand.Random, devices: list[TestDevice]) -> tuple[Tensor, Graph, list[Tensor]]:
    """Rounds of work on every device, each ended by a sum of all; now and then one device reads
    what another made."""
    x, graph = given(4, 4, name="x"), Graph()
    own = [x for _ in devices]
    seen: list[Tensor] = [x]
    pins: list[Tensor] = []
    for _ in range(4):
        for i in range(len(devices)):
            cur = ops.mul(own[i], weight(devices[i], 4, seed=rng.randint(1, 99)))
            for _ in range(rng.randint(0, 4)):
                other = rng.choice(seen) if rng.random() < 0.3 else own[i]
                step: Callable[[], Tensor] = rng.choice(
                    [lambda: ops.add(cur, other), lambda: ops.scale(cur, 0.5), lambda: ops.sqr(cur)]  # noqa: B023
                )
                cur = step()
                seen.append(cur)
            own[i] = ops.mul(cur, weight(devices[i], 4, seed=rng.randint(1, 99)))
            graph.build_forward_expand(own[i])
        total = graph.build_forward_expand(ops.all_reduce(own))
        own = [ops.reduce_part(total, i) for i in range(len(devices))]
        seen = [x, *own]
    pins = [ops.scale(t, 2.0) for t in own]
    for t in pins:
        t.flags |= FLAG_OUTPUT
        graph.build_forward_expand(t)
    return x, graph, pins


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("seed", range(12))
def test_what_runs_at_the_same_time_does_not_meet(seed: int, shared: bool) -> None:
    kind = MainMemoryDevice if shared else TestDevice
    devices = [kind(f"d{i}") for i in range(3)]
    host = kind("host")

    def run(together: bool) -> list[np.ndarray]:
        x, graph, results = branches(rand.Random(seed), [*devices])
        fixed = [(t, _home(t, devices)) for t in graph.nodes if t.op == "MUL"] if shared else []
        planned = Scheduler([*devices, host], together=together).plan(graph, fixed=fixed)
        if isinstance(planned, PlanInWaves):
            assert max(map(len, planned.waves)) > 1
            assert clashes(planned) == []
        set_tensor(x, random(x, 7))
        planned.run()
        return [get_tensor(t) for t in results]

    np.testing.assert_array_equal(run(True), run(False))


def _home(t: Tensor, devices: list[TestDevice]) -> TestDevice:
    """On shared memory nothing says where a product is to run; its weight's seed does here."""
    assert t.src[1] is not None
    return devices[int(abs(get_tensor(t.src[1]).ravel()[0]) * 1e4) % len(devices)]
