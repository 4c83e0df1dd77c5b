"""The harness finds what it is for: each planted fault is caught, and only faults are."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from ggml_py.backend import CompileOptions
from ggml_py.ops.registry import OPS
from ggml_py.tensor import Tensor
from ggml_ref.backend import RefDevice, RefProgram
from ggml_ref.ops.copy import window
from ggml_ref.table import table
from ggml_ref.values import copy, elements, load, store
from llama_py_tools.test_backend_ops import main as main_function
from llama_py_tools.test_backend_ops.case import Case
from llama_py_tools.test_backend_ops.cases import all_cases
from llama_py_tools.test_backend_ops.filters import select, split_filter
from llama_py_tools.test_backend_ops.report import record
from llama_py_tools.test_backend_ops.run import Outcome, Status, evaluate, nmse

main = sys.modules[main_function.__module__]
Step = Callable[[Tensor], None]


class FaultyDevice(RefDevice):
    """The reference with one op done wrong."""

    name = "faulty"
    kind = "cpu"

    def __init__(self, op: str = "", step: Step | None = None) -> None:
        self.op, self.step = op, step

    def why_not(self, node: Tensor) -> str:
        return "not today" if self.step is None and node.op == self.op else super().why_not(node)

    def compile(self, nodes: list[Tensor], options: CompileOptions) -> RefProgram:
        def step_of(t: Tensor) -> Step:
            return self.step if self.step is not None and t.op == self.op else table.get(t)

        return RefProgram([(step_of(t), t) for t in nodes])


def right(node: Tensor) -> None:
    table.get(node)(node)


def outcomes(
    op: str, step: Step | None, filter: str = "", most: int | None = None
) -> Iterator[Outcome]:
    """Of all cases, or of `most` that are evenly spaced."""
    device, reference = FaultyDevice(op, step), RefDevice()
    cases = [c for c in all_cases() if c.op == op and filter in c.vars and not c.perf]
    assert cases
    n = min(most or len(cases), len(cases))
    return (evaluate(cases[i * len(cases) // n], device, reference) for i in range(n))


def assert_caught(op: str, step: Step, reason: str, filter: str = "") -> None:
    """By some case; those after the first that finds it are not run."""
    others = []
    for found in outcomes(op, step, filter):
        if found.status is Status.FAIL:
            if reason in found.reason:
                return
            others.append(found.reason)
    raise AssertionError(others)


def acc_without_dimension_3(node: Tensor) -> None:
    a, b = node.src
    copy(node, a)
    part = window(node)
    part.ne = (*part.ne[:3], 1)
    store(part, load(part) + load(b)[:1])


def solve_tri_without_diagonal(node: Tensor) -> None:
    a = elements(node.src[0])
    saved = a.copy()
    a[..., np.arange(a.shape[-1]), np.arange(a.shape[-1])] = 1
    right(node)
    a[...] = saved


def with_params(change: Callable[[dict[str, Any]], dict[str, Any]]) -> Step:
    """The op with some of its parameters misread."""

    def step(node: Tensor) -> None:
        saved, fields = node.params, OPS[node.op].fields
        named = dict(zip(fields, saved, strict=True))
        node.params = tuple((named | change(named)).values())
        right(node)
        node.params = saved

    return step


def sections_swapped(params: dict[str, Any]) -> dict[str, Any]:
    return {"section_t": params["section_h"], "section_h": params["section_t"]}


def eps_tenfold(params: dict[str, Any]) -> dict[str, Any]:
    return {"eps": 10 * params["eps"]}


def last_element_unwritten(node: Tensor) -> None:
    out = elements(node)
    if out.size:
        before = out[-1, -1, -1, -1]
        right(node)
        out[-1, -1, -1, -1] = before


def past_the_end(node: Tensor) -> None:
    right(node)
    node.buffer.view(node.offset + node.nbytes, 4)[:] = 0


def before_the_start(node: Tensor) -> None:
    right(node)
    node.buffer.view(node.offset - 1, 1)[:] = 7


def input_modified(node: Tensor) -> None:
    right(node)
    source = elements(node.src[0])
    source[..., :1] = 0.125


def reads_past_a_row(node: Tensor) -> None:
    """Strides ignored: rows are taken to follow each other."""
    a = node.src[0]
    dense = Tensor(a.type, a.ne)
    dense.buffer, dense.offset = a.buffer, a.offset
    store(node, np.abs(load(dense)))


def scaled_by(factor: float) -> Step:
    def step(node: Tensor) -> None:
        right(node)
        store(node, load(node) * factor)

    return step


def infinity(node: Tensor) -> None:
    right(node)
    elements(node)[..., :1] = np.inf


def raises(node: Tensor) -> None:
    raise RuntimeError("kernel fell over")


def last_row_of_weights_ignored(node: Tensor) -> None:
    right(node)
    elements(node)[..., -1] = 0


def wrong_expert(node: Tensor) -> None:
    ids = elements(node.src[2])
    saved = ids.copy()
    ids[...] = (ids + 1) % node.src[0].ne[2]
    right(node)
    ids[...] = saved


def cyclic_shift(node: Tensor) -> None:
    right(node)
    out = elements(node)
    out[...] = np.roll(out, 1, axis=-1)


def next_index(node: Tensor) -> None:
    right(node)
    elements(node)[...] += 1


def whole_cache_rewritten(node: Tensor) -> None:
    """The whole destination is decoded and encoded again, as if that changed nothing."""
    right(node)
    store(node, load(node) + 1e-3)


@pytest.mark.parametrize(
    ("op", "step", "reason", "filter"),
    [
        ("ACC", acc_without_dimension_3, "ERR", "inplace=0"),
        ("ACC", acc_without_dimension_3, "ERR = 0", "block_size=16,n_blocks=4,ne2=3,ne3=2"),
        ("ACC", acc_without_dimension_3, "ERR = 0", "block_size=32,n_blocks=4,ne2=2,ne3=2"),
        ("SOLVE_TRI", solve_tri_without_diagonal, "ERR", ""),
        ("ROPE", with_params(sections_swapped), "ERR", "mode=8"),
        ("ROPE", with_params(sections_swapped), "ERR", "mode=40"),
        ("L2_NORM", with_params(eps_tenfold), "ERR", ""),
        ("MUL", last_element_unwritten, "NaN", ""),
        ("CONT", last_element_unwritten, "ERR", "type=i32"),
        ("ABS", past_the_end, "sentinel mismatch: written after", ""),
        ("ABS", before_the_start, "sentinel mismatch", ""),
        ("NEG", input_modified, "input modified", ""),
        ("ABS", reads_past_a_row, "[ABS]", "v=1"),
        ("TANH", scaled_by(1.001), "ERR", "type=f32"),
        ("MUL_MAT", scaled_by(1.05), "ERR", "type_a=q4_K"),
        ("MUL_MAT", last_row_of_weights_ignored, "ERR", "type_a=q4_0,m=100"),
        ("MUL_MAT_ID", wrong_expert, "ERR", "type_a=f16"),
        ("SOFT_MAX", infinity, "inf at index", ""),
        ("EXP", raises, "RuntimeError: kernel fell over", ""),
        ("ARGSORT", cyclic_shift, "ERR", ""),
        ("TOP_K", next_index, "ERR", ""),
        ("SET_ROWS", whole_cache_rewritten, "[", "type=q8_0"),
        ("ADD", input_modified, "ERR", "inplace=1"),
    ],
)
def test_fault_is_caught(op: str, step: Step, reason: str, filter: str) -> None:
    assert_caught(op, step, reason, filter)


@pytest.mark.parametrize("op", ["ACC", "SOLVE_TRI", "MUL_MAT_ID", "SET_ROWS", "GATED_DELTA_NET"])
def test_no_fault_no_alarm(op: str) -> None:
    assert {o.status for o in outcomes(op, right, most=60)} == {Status.OK}


def test_top_k_promises_no_order() -> None:
    assert {o.status for o in outcomes("TOP_K", cyclic_shift, most=60)} == {Status.OK}


def test_refusal_is_told_with_the_reason() -> None:
    assert next(outcomes("ABS", None)) == Outcome(Status.NOT_SUPPORTED, "faulty: not today")


def test_unwritten_snapshots_may_stay_unwritten_but_not_the_rest() -> None:
    """More snapshots than tokens: their places keep what was there, on both sides."""

    def forgets_a_state(node: Tensor) -> None:
        flat = elements(node).reshape(-1)
        saved = flat[-5:].copy()
        right(node)
        flat[-5:] = saved

    assert_caught(
        "GATED_DELTA_NET", forgets_a_state, "NaN", "n_seq_tokens=4,n_seqs=1,v_repeat=2,K=4"
    )
    few = "n_seq_tokens=1,n_seqs=1,v_repeat=2,K=4"
    assert {o.status for o in outcomes("GATED_DELTA_NET", forgets_a_state, few)} == {Status.OK}


class FusingDevice(FaultyDevice):
    """Runs RMS_NORM and MUL as one where it may: the norm's own value is never written."""

    def compile(self, nodes: list[Tensor], options: CompileOptions) -> RefProgram:
        def fused(node: Tensor) -> None:
            normed, weight = node.src
            (x,) = normed.src
            values = load(x)
            values /= np.sqrt((values**2).mean(axis=-1, keepdims=True) + normed.param("eps"))
            store(node, values * load(weight))

        assert [t.op for t in nodes] == ["RMS_NORM", "MUL"]
        return RefProgram([(fused, nodes[1])] if options.fuse else [(right, t) for t in nodes[1:]])


def test_fused_cases_compare_the_last_value_only() -> None:
    case = next(c for c in all_cases() if c.op == "RMS_NORM_MUL")
    assert evaluate(case, FusingDevice(), RefDevice()).status is Status.OK
    apart = replace(case, fused=False)
    assert "[RMS_NORM] NaN" in evaluate(apart, FusingDevice(), RefDevice()).reason


def test_inputs_depend_on_case_and_seed_only() -> None:
    a, b = all_cases()[:2]
    assert a.seed(0) != b.seed(0)
    assert a.seed(0) != a.seed(1)
    assert a.seed(3) == a.seed(3)


def test_printed_cases_are_different() -> None:
    names = [str(c) for c in all_cases() if not c.perf]
    assert len(names) == len(set(names))


def test_nmse() -> None:
    assert nmse(np.array([3.0, 4.0]), np.array([3.0, 3.0])) == pytest.approx(1 / 25)
    assert nmse(np.zeros(2), np.zeros(2)) == 0
    assert nmse(np.zeros(2), np.ones(2)) == float("inf")
    assert nmse(np.array([np.inf, 1.0]), np.array([np.inf, 1.0])) == 0


def test_a_printed_case_is_a_filter_for_itself() -> None:
    for case in all_cases()[::97]:
        assert split_filter(f"ADD,{case}") == ["ADD", str(case)]
        assert [str(c) for c in select(str(case), None, case.perf)] == [str(case)]


def test_filters() -> None:
    assert {c.op for c in select("ADD", None, False)} == {"ADD"}
    products = {c.op for c in select("^MUL_MAT", None, False)}
    assert {"MUL_MAT", "MUL_MAT_ID"} <= products
    assert all(op.startswith("MUL_MAT") for op in products)
    assert all("n=9" in c.vars for c in select("MUL_MAT", r"\bn=9\b", False))


@pytest.mark.parametrize("output", ["console", "csv", "json", "sql"])
def test_exit_codes(
    output: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    args = ["-o", "NEG", "--output", output]
    monkeypatch.setattr(main, "find_devices", lambda *_: [FaultyDevice()])
    assert main_function(args) == 0
    monkeypatch.setattr(main, "find_devices", lambda *_: [FaultyDevice("NEG", scaled_by(2))])
    assert main_function(args) == 1
    assert "NEG" in capsys.readouterr().out


def test_console_lines(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(main, "find_devices", lambda *_: [FaultyDevice("ABS")])
    main_function(["-o", "ABS,NEG", "-p", r"f32,ne_a=\[1,"])
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "Testing 1 devices"
    assert "Backend 1/1: faulty" in lines
    assert "  ABS(type=f32,ne_a=[1,1,1,1],v=0): not supported [faulty: not today]" in lines
    assert "  NEG(type=f32,ne_a=[1,1,1,1],v=0): OK" in lines
    assert lines[-4:] == ["  1/1 tests passed", "  Backend faulty: OK", "1/1 backends passed", "OK"]


@pytest.mark.parametrize("args", [["-o", "NO_SUCH_OP"], ["-b", "nowhere"], ["-p", "("]])
def test_bad_requests_say_so(args: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main_function(args) == 1
    assert capsys.readouterr().err.startswith("error: ")


def test_support_mode_needs_no_memory(capsys: pytest.CaptureFixture[str]) -> None:
    assert main_function(["support", "-b", "null", "-o", "MUL_MAT", "--output", "csv"]) == 0
    out = capsys.readouterr().out.splitlines()
    assert out[0].startswith('"backend_name","op_name"')
    assert all('"yes"' in line for line in out[1:])


def test_record_of_a_failure() -> None:
    case: Case = all_cases()[0]
    r = record(case, FaultyDevice(), "test", Outcome(Status.FAIL, "[ABS] ERR = 1 > 0 "))
    assert (r.supported, r.passed, r.error_message) == (True, False, "[ABS] ERR = 1 > 0")


def test_help_imports_no_backend() -> None:
    code = (
        "import sys; from llama_py_tools.test_backend_ops import main\n"
        "try: main(['--help'])\n"
        "except SystemExit: pass\n"
        "assert not {'numpy', 'numba', 'ggml_cpu', 'ggml_ref'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)
