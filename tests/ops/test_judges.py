"""`--against`: who judges, what is said when it cannot, and the real ggml through ctypes."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

import pytest

from ggml_py.backend import CompileOptions, registry
from ggml_py.errors import BackendError
from ggml_py.machine.extras import install_hint
from ggml_py.types import BY_NAME, F32
from ggml_ref.backend import RefDevice
from llama_py_tools.test_backend_ops import main, timing
from llama_py_tools.test_backend_ops.case import Case
from llama_py_tools.test_backend_ops.cases import all_cases
from llama_py_tools.test_backend_ops.differences import DIFFERENCES, CaseDifference
from llama_py_tools.test_backend_ops.judges import judge, libggml
from llama_py_tools.test_backend_ops.judges.device import GgmlDevice
from llama_py_tools.test_backend_ops.run import (
    Bench,
    Outcome,
    Status,
    draw_inputs,
    evaluate,
    values,
)
from llama_py_tools.test_backend_ops.totals import Totals
from tests.support.devices import TestDevice, WrongDevice


def chosen(op: str, **args: Any) -> Case:
    """The first case of an op with these parameters."""
    return next(
        c
        for c in all_cases()
        if c.op == op and not c.perf and all(c.args.get(n) == v for n, v in args.items())
    )


all_cases()  # the files of the cases tell the differences too
IN_VALUES = [d for d in DIFFERENCES if not d.crashes]


@pytest.fixture(scope="module")
def ggml() -> GgmlDevice:
    pytest.importorskip("llama_cpp", reason="needs llama-cpp-python: pip install '.[parity]'")
    return GgmlDevice()


def test_judges_by_name() -> None:
    assert judge("ref") is registry.device("ref")
    assert judge("cpu") is registry.device("cpu")


def test_without_llama_cpp_it_is_said_in_a_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(libggml, "find_spec", lambda name: None)
    libggml.Ggml.load.cache_clear()
    assert main(["-b", "ref", "--against", "ggml", "-o", "NEG"]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err == f"error: --against ggml needs llama-cpp-python: {install_hint('parity')}\n"


def test_a_library_of_another_make_is_refused(
    ggml: GgmlDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(ggml.ggml.ops, "SCALE", 0)
    with pytest.raises(
        BackendError, match=r"llama-cpp-python \S+ has an unknown layout of struct ggml_tensor"
    ):
        ggml.ggml._check_layout()


@pytest.mark.parity
@pytest.mark.parametrize("op", ["NEG", "GEGLU", "XIELU", "RMS_NORM", "SET", "MUL_MAT_ID", "TRI"])
def test_ggml_agrees_with_the_reference(ggml: GgmlDevice, op: str) -> None:
    cases = [c for c in all_cases() if c.op == op and not c.perf][::5]
    found = Counter(evaluate(c, registry.device("ref"), ggml).status for c in cases)
    assert found[Status.OK] >= 1
    assert found[Status.FAIL] == 0


@pytest.mark.parity
def test_ops_that_ggml_lacks_are_not_supported(ggml: GgmlDevice) -> None:
    found = evaluate(chosen("DELTA_NET"), registry.device("ref"), ggml)
    assert found == Outcome(Status.NOT_SUPPORTED, "ggml: it does not have op DELTA_NET")


@pytest.mark.parity
def test_where_ggml_aborts_we_go_on(ggml: GgmlDevice) -> None:
    case = chosen("SUM_ROWS", perm=(1, 0, 2, 3))
    for _ in range(2):
        found = evaluate(case, registry.device("ref"), ggml)
        assert found.status is Status.NOT_SUPPORTED
        assert "GGML_ASSERT" in found.reason
    assert evaluate(chosen("NEG"), registry.device("ref"), ggml).status is Status.OK


@pytest.mark.parity
@pytest.mark.parametrize("difference", IN_VALUES, ids=lambda d: f"{d.op}-{d.cases()}")
def test_known_differences_are_there(ggml: GgmlDevice, difference: CaseDifference) -> None:
    covered = [c for c in all_cases() if difference.covers(c) and not c.perf]
    found = {
        evaluate(c, registry.device("ref"), ggml, seed).status for c in covered for seed in range(6)
    }
    assert Status.KNOWN in found
    assert Status.FAIL not in found


def test_differences_are_of_some_cases() -> None:
    unused = [d for d in DIFFERENCES if not any(map(d.covers, all_cases()))]
    assert unused == []


def test_a_known_difference_excuses_when_ggml_judges() -> None:
    case = chosen("CUMSUM", axis=1, ne=(33, 5, 3, 2))
    wrong, as_ggml = WrongDevice("wrong", "CUMSUM"), RefDevice("ggml")
    outcome = evaluate(case, wrong, as_ggml)
    assert outcome.status is Status.KNOWN
    assert "[ggml adds along dimension 0 only]" in outcome.reason
    assert evaluate(case, wrong, RefDevice()).status is Status.FAIL
    assert evaluate(chosen("CUMSUM", v=True, type=F32), wrong, as_ggml).status is Status.FAIL


def test_what_ggml_does_not_survive_is_not_asked() -> None:
    found = evaluate(chosen("GET_ROWS", type=BY_NAME["q8_1"]), RefDevice(), RefDevice("ggml"))
    assert found.status is Status.NOT_SUPPORTED
    assert found.reason.startswith("ggml calls a missing function to decode")


def test_totals_tell_what_was_compared_and_how_to_repeat_it() -> None:
    a, b, c = all_cases()[:3]
    totals = Totals("ggml", ["test-backend-ops", "--seed", "7"])
    for case, status in ((a, Status.OK), (b, Status.FAIL), (c, Status.NOT_SUPPORTED)):
        totals.add(case, Outcome(status))
    assert totals.coverage() == (
        "1 ops, 2 cases compared with ggml: 1 equal, 1 not; 1 not supported"
    )
    assert totals.commands() == [f"test-backend-ops --seed 7 -o '{b}'"]


ROW = "ADD(type=f32,ne=[4096,1,1,1],nr=[1,1,1,1])"


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timing, "SECONDS", 0.0)


@pytest.mark.usefixtures("quick")
def test_perf_times_a_rival_too(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["perf", "-b", "cpu", "--against", "ref", "-o", ROW, "-t", "1"]) == 0
    line = next(line for line in capsys.readouterr().out.splitlines() if ROW in line)
    match = re.search(r"([\d.]+) us/run - .* GB/s - +([\d.]+) us/run there, ratio +([\d.]+)", line)
    assert match, line
    ours, theirs, ratio = map(float, match.groups())
    assert ratio == pytest.approx(theirs / ours, rel=0.1, abs=0.01)


@pytest.mark.usefixtures("quick")
def test_perf_alone_and_beside_one_that_cannot(capsys: pytest.CaptureFixture[str]) -> None:
    case = chosen("NEG")
    assert timing.measure(case, registry.device("cpu")).rival_us == 0
    rival = TestDevice("rival", "NEG")
    assert timing.measure(case, registry.device("cpu"), rival=rival).rival_us == 0


def test_perf_beside_ggml(ggml: GgmlDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    """A node that is repeated is in one graph of ggml's as often."""
    computed: list[tuple[int, int]] = []

    def compute(node: int, times: int = 1, n_threads: int = 1) -> None:
        computed.append((times, n_threads))

    case = chosen("NEG")
    bench = Bench(case, ggml)
    node = bench.graph.compute_nodes()[-1]
    bench.write(draw_inputs(bench.leaves, case.seed(0)))
    ggml.set_threads(2)
    ggml.compile([node] * 5, CompileOptions()).run()
    assert (values(node) == -values(node.src[0])).all()
    monkeypatch.setattr(ggml.ggml, "compute", compute)
    ggml.compile([node] * 5, CompileOptions()).run()
    ggml.compile([node], CompileOptions()).run()
    assert computed == [(5, 2), (1, 1)]
