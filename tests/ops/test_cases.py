"""Every op on every installed backend against the reference: some cases of each op.

`test-backend-ops` runs all of them.
"""

from __future__ import annotations

import re
from collections import defaultdict
from functools import cache, lru_cache

import numpy as np
import pytest

from ggml_py.backend import Device, registry
from ggml_py.ops.registry import OPS
from ggml_py.plan.sched import Scheduler
from ggml_py.tensor import FLAG_INPUT
from llama_py_tools.test_backend_ops.case import Array, Case
from llama_py_tools.test_backend_ops.cases import all_cases
from llama_py_tools.test_backend_ops.run import (
    ExpectedResult,
    Status,
    draw_inputs,
    expect,
    judge_case,
    nmse,
    values,
    warm_up,
    why_not,
)
from tests.support.installed import devices_or_skip

CASES_PER_OP = 12
# A later block of keys has a larger maximum here, so earlier sums are scaled down.
MORE = {"FLASH_ATTN_EXT(hsk=576,hsv=512,nr=20,kv=512,nb=32,type_K=f16,shared=1)"}
# Devices of "mpi" there are in programs of several ranks only (tests/mpi): they are CPUs.
BACKENDS = [name for name in registry.backend_names() if name not in ("ref", "null", "mpi")]


def some_cases() -> list[Case]:
    """At most CASES_PER_OP of each op, evenly spaced over its grid, and those of MORE."""
    by_op: dict[str, list[Case]] = defaultdict(list)
    for c in all_cases():
        if not c.perf:
            by_op[c.op].append(c)
    chosen = []
    for cases in by_op.values():
        n = min(len(cases), CASES_PER_OP)
        chosen += [cases[i * len(cases) // n] for i in range(n)]
        chosen += [case for case in cases if str(case) in MORE]
    return chosen


def refused(backend: str, cases: list[Case]) -> list[Case]:
    """What a backend says that it does not take; one that answers on a device only takes all."""
    device = registry.absent(backend)
    if device is None:
        return []
    return [c for c in cases if any(device.why_not(t) for t in c.graph()[0].compute_nodes())]


SOME = some_cases()
REFUSED = {backend: refused(backend, SOME) for backend in BACKENDS}


@cache
def ready(backend: str) -> tuple[Device, ...]:
    """A backend's devices, with the kernels of all cases built: once, where a fixture with a
    parameter would be made for each case. Those of OpenCL are optimized, unlike in other tests."""
    found = devices_or_skip(backend)
    if backend == "opencl":
        found = tuple(device.reopen(device.name) for device in found)
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("PYOPENCL_BUILD_OPTIONS", raising=False)
        for device in found:
            warm_up(SOME, device)
    return found


@lru_cache(maxsize=1)
def expected(case: Case) -> ExpectedResult:
    """The reference's values, which one backend after the other is compared with."""
    return expect(case, registry.device("ref"))


@pytest.mark.parametrize(
    ("backend", "case"), [(b, c) for c in SOME for b in BACKENDS if c not in REFUSED[b]], ids=str
)
def test_case(backend: str, case: Case) -> None:
    for device in ready(backend):
        assert not (reason := why_not(case, device)), reason
        outcome = judge_case(case, device, expected(case))
        assert outcome.status is Status.OK, outcome.reason


@pytest.mark.parametrize(
    ("backend", "case"), [(b, c) for b in BACKENDS for c in REFUSED[b]], ids=str
)
def test_what_is_refused_runs_on_the_cpu(backend: str, case: Case) -> None:
    """With the reason why not, and the right values. docs/ops.md says how much is refused."""
    (expected,), _ = run_on(case, [registry.device("ref")])
    for device in ready(backend):
        assert re.search(r"needs .*; got ", why_not(case, device))
        (got,), (where,) = run_on(case, [device, registry.device("cpu")])
        assert where == "cpu"
        compare = case.compare or np.asarray
        assert nmse(compare(expected), compare(got)) <= case.nmse_bound()


def run_on(case: Case, where: list[Device]) -> tuple[list[Array], list[str]]:
    """What the case's nodes that compute give, and the devices on which they ran."""
    graph, leaves = case.graph()
    for leaf in leaves.inits:
        leaf.flags |= FLAG_INPUT
    plan = Scheduler(where).plan(graph)
    for leaf, data in zip(leaves.inits, draw_inputs(leaves, case.seed(0)), strict=True):
        assert leaf.buffer is not None
        leaf.buffer.write(leaf.offset, data)
    plan.run()
    nodes = graph.compute_nodes()
    ran = {id(t): split.device.name for split in plan.splits for t in split.nodes}
    return [values(t) for t in nodes], [ran[id(t)] for t in nodes]


def test_every_op_has_a_case() -> None:
    computed = {name for name, spec in OPS.items() if not spec.view}
    assert sorted(computed - {c.op for c in all_cases()}) == []


def test_every_op_has_a_timed_case() -> None:
    computed = {name for name, spec in OPS.items() if not spec.view}
    assert sorted(computed - {c.op for c in all_cases() if c.perf}) == []


@pytest.mark.parametrize("backend", ["cpu", "ref"])
def test_every_op_is_supported(backend: str) -> None:
    """A case that is skipped proves nothing, so of each op some case must run."""
    (device,) = registry.devices(backend)
    runs = set[str]()
    for c in all_cases():
        if c.op in OPS and c.op not in runs and not why_not(c, device):
            runs.add(c.op)
    computed = {name for name, spec in OPS.items() if not spec.view}
    assert sorted(computed - runs) == []
