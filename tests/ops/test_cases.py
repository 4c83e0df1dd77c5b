"""Every op on every installed backend against the reference: some cases of each op.

`test-backend-ops` runs all of them.
"""

from __future__ import annotations

from collections import defaultdict

import pytest

from ggml_py import registry
from ggml_py.backend import Device
from ggml_py.ops.registry import OPS
from llama_py_tools.test_backend_ops.case import Case
from llama_py_tools.test_backend_ops.cases import all_cases
from llama_py_tools.test_backend_ops.run import Status, evaluate, warm_up, why_not
from tests.installed import devices_or_skip

CASES_PER_OP = 12
BACKENDS = [name for name in registry.backend_names() if name not in ("ref", "null")]


def some_cases() -> list[Case]:
    """At most CASES_PER_OP of each op, evenly spaced over its grid."""
    by_op: dict[str, list[Case]] = defaultdict(list)
    for c in all_cases():
        if not c.perf:
            by_op[c.op].append(c)
    chosen = []
    for cases in by_op.values():
        n = min(len(cases), CASES_PER_OP)
        chosen += [cases[i * len(cases) // n] for i in range(n)]
    return chosen


@pytest.fixture(scope="module", params=BACKENDS)
def devices(request: pytest.FixtureRequest) -> tuple[Device, ...]:
    """A backend's devices, with the kernels of all cases built."""
    found = devices_or_skip(request.param)
    for device in found:
        warm_up(some_cases(), device)
    return found


@pytest.mark.parametrize("case", some_cases(), ids=str)
def test_case(case: Case, devices: tuple[Device, ...]) -> None:
    for device in devices:
        outcome = evaluate(case, device, registry.device("ref"))
        if outcome.status is Status.NOT_SUPPORTED and device.name != "cpu":  # it takes every case
            pytest.skip(outcome.reason)
        assert outcome.status is Status.OK, outcome.reason


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
    runs = {c.op for c in all_cases() if c.op in OPS and not why_not(c, device)}
    computed = {name for name, spec in OPS.items() if not spec.view}
    assert sorted(computed - runs) == []
