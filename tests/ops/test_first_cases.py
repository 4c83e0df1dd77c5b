"""The first case of each op on the CPU, against the reference; test_cases.py has more of them."""

from __future__ import annotations

from ggml_py.backend import registry
from llama_py_tools.test_backend_ops.cases import all_cases
from llama_py_tools.test_backend_ops.run import Status, evaluate


def test_the_first_case_of_each_op() -> None:
    cpu, ref = registry.device("cpu"), registry.device("ref")
    first = {case.op: case for case in reversed(all_cases()) if not case.perf}
    outcomes = {str(case): evaluate(case, cpu, ref) for case in first.values()}
    assert len(outcomes) > 150
    failed = {name: o.reason for name, o in outcomes.items() if o.status is not Status.OK}
    assert failed == {}
