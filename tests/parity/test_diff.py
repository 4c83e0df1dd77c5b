"""llama-py-graph diff against the real llama.cpp: what is wrong in ours is found by name."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from ggml_py.patterns.norm import RMS_NORM_MUL
from llama_py.graph.inputs import tokens as inputs
from llama_py_tools.graph import main
from tests.support.commands import tiny_model
from tests.support.faults import plant, plant_in_step

pytest.importorskip("llama_cpp", reason="needs llama-cpp-python: pip install '.[parity]'")
pytestmark = pytest.mark.parity

PROMPT = ("-p", "ROMEO:\nBut soft, what light", "--decode", "1")
NAMES = [
    "bert-dense",
    "deepseek32-moe",
    "gemma3n-few",
    "gpt-oss-moe",
    "kimi-linear-moe",
    "lfm2-window",
    "llada-dense",
    "mamba2-dense",
    "rwkv6-fused",
    "t5-gated",
]
Out = pytest.CaptureFixture[str]


def against_llama_cpp(out: Out, *args: str) -> tuple[int, str]:
    code = main(["diff", "--against", "llama.cpp", *args])
    return code, out.readouterr().out


def first(report: str) -> str:
    (name,) = re.findall(r"^first wrong node: (.*?)  \(", report, re.M)
    return str(name)


def test_the_demo_model(capsys: Out) -> None:
    code, report = against_llama_cpp(capsys, *PROMPT)
    assert code == 0
    assert report.startswith("equal: 674 nodes\nvalues: 290 nodes of cpu and llama.cpp compared: ")
    assert "no larger differences than rounding explains" in report
    assert float(re.findall(r"KL divergence mean (\S+),", report)[0]) < 1e-4


@pytest.mark.parametrize("name", NAMES)
def test_architectures(name: str, tmp_path: Path, capsys: Out) -> None:
    model = ("-m", str(tiny_model(tmp_path, name)), "--tokens", "1,2,3,4,5,6,7,8,9")
    code, report = against_llama_cpp(capsys, *model, "--decode", "1")
    assert code == 0, report
    assert "differs" not in report


def test_a_wrong_kernel(monkeypatch: pytest.MonkeyPatch, capsys: Out) -> None:
    plant(monkeypatch, "SWIGLU", "geglu_f32", "ffn_swiglu-1")
    code, report = against_llama_cpp(capsys, *PROMPT, "--no-fuse")
    assert (code, first(report)) == (1, "ffn_swiglu-1")
    wrong = re.findall(r"^  (\S+) +\S+  SWIGLU", report, re.M)
    assert wrong == ["ffn_swiglu-1"], "of the second graph, and nothing else"
    assert re.search(r"ref computes ffn_swiglu-1 .*: cpu is .*, llama\.cpp .*: cpu wrong", report)


def test_a_wrong_step(monkeypatch: pytest.MonkeyPatch, capsys: Out) -> None:
    plant_in_step(monkeypatch, RMS_NORM_MUL, "attn_norm-2")
    code, report = against_llama_cpp(capsys, *PROMPT)
    assert (code, first(report)) == (1, "attn_norm-2")
    assert "computed alone, cpu matches ref: the fused step is wrong" in report


def test_a_wrong_hyperparameter(capsys: Out) -> None:
    """It is in the graph: no value is compared."""
    key = "qwen35moe.attention.layer_norm_rms_epsilon=float:0.01"
    code, report = against_llama_cpp(capsys, *PROMPT, "--override-kv", key)
    assert code == 1
    told, ours, theirs = report.splitlines()
    assert re.fullmatch(r"node 1 'norm-0': params: .* != .* \(graph 0\)", told)
    node = r"norm-0 = RMS_NORM\(model\.input_embed f32 \[256, 8\]\) -> f32 \[256, 8\], eps"
    assert re.fullmatch(rf"  first   {node}=0\.01", ours)
    assert re.fullmatch(rf"  second  {node}=1e-06", theirs)


def test_wrong_positions(monkeypatch: pytest.MonkeyPatch, capsys: Out) -> None:
    """What is set before the graph runs: named beside the first node that reads it."""
    right: Any = inputs.InputPos.set_input

    def late(self: Any, ubatch: Any) -> None:
        ubatch.pos[:] += 1
        right(self, ubatch)
        ubatch.pos[:] -= 1

    monkeypatch.setattr(inputs.InputPos, "set_input", late)
    code, report = against_llama_cpp(capsys, *PROMPT)
    assert (code, first(report)) == (1, "Qcur-3")
    assert re.search(
        r"^    inp_pos +i32 \[\d+\] +differs before the run: largest error 1 ", report, re.M
    )
