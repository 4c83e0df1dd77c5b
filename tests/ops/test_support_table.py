"""The table of docs/ops.md, which a command of CONTRIBUTING.md writes (test_commands.py)."""

from __future__ import annotations

import pytest

from ggml_opencl.backend import table as opencl
from ggml_py.backend import registry
from ggml_py.errors import BackendError
from ggml_py.tensor import Tensor
from llama_py_tools.test_backend_ops import main
from llama_py_tools.test_backend_ops.markdown import table


def test_a_share_is_told_only_where_it_is_one() -> None:
    answers = {
        ("ABS", "cpu"): {"a": True, "b": True},
        ("ABS", "gpu"): {"a": True, "b": False},
        ("ADD", "cpu"): {"a": False},
    }
    lines = table(answers).splitlines()
    start = lines.index("| op | cpu | gpu |")
    assert lines[start + 2 : start + 4] == ["| ABS | yes | 1 of 2 |", "| ADD | - | - |"]


def test_a_backend_answers_without_a_device(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def no_device(backend: str) -> None:
        raise BackendError(f"{backend}: no driver")

    monkeypatch.setattr(registry, "devices", no_device)
    monkeypatch.delitem(opencl._table, "ABS")  # it supports everything
    assert main(["support", "-b", "opencl", "-o", "NEG,ABS", "--output", "csv"]) == 0
    out, err = capsys.readouterr()
    assert '"opencl","NEG","type=f32,ne_a=[128,2,2,2],v=0","support","1","yes","opencl"' in out
    assert "no kernel for ABS" in out
    assert err == ""


def test_without_a_device_nothing_is_tested(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    devices = registry.devices
    monkeypatch.setattr(registry, "devices", lambda b: () if b == "opencl" else devices(b))
    for names in ("opencl", "cpu,opencl"):
        assert main(["-b", names, "-o", "NEG"]) == 1
        assert capsys.readouterr() == ("", "error: backend opencl has no device on this machine\n")


def test_what_a_backend_can_tell_without_a_device() -> None:
    device = registry.absent("opencl7")
    assert device is not None and device.name == "opencl7"
    assert device.why_not(Tensor(op="NO_SUCH_OP")) == "no kernel for NO_SUCH_OP"
    assert registry.absent("ref") is None
    assert registry.absent("nowhere") is None


def test_markdown_is_for_support(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["--output", "markdown"])
    assert "support mode" in capsys.readouterr().err
