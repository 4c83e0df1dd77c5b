"""llama-py-graph profile: times of steps, as tables, JSON and a trace."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from llama_py_tools.graph import main
from tests.commands import tiny_model


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(tiny_model(tmp_path_factory.mktemp("profile"), "qwen35moe-moe"))


def profile(model: str, *args: str) -> int:
    return main(["profile", "-m", model, "--tokens", "1,2,3", "-t", "1", "-r", "1", *args])


def test_tables(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert profile(model, "--decode", "1", "--top", "3") == 0
    out = capsys.readouterr().out
    heads = [line for line in out.splitlines() if " ms, of these " in line]
    assert [head.split(":")[0] for head in heads] == ["prompt, 3 tokens", "token 1"]
    for by in ("by op", "by layer", "by node"):
        assert out.count(f"\n  {by}") == 2
    assert "layer 0" in out and "100.0%" not in out


def test_every_step_has_its_place(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Steps follow one another within the run, and are of the graph's layers."""
    assert profile(model, "--decode", "2", "--json") == 0
    runs = json.loads(capsys.readouterr().out)
    assert [run["run"] for run in runs] == ["prompt, 3 tokens", "token 1", "token 2"]
    for run in runs:
        steps = run["steps"]
        assert {s["layer"] for s in steps} == {"layer 0", "layer 1", "outside of layers"}
        assert sum(s["us"] for s in steps) == pytest.approx(1e3 * run["steps_ms"])
        assert 0 < run["steps_ms"] <= run["wall_ms"]
        ends = [s["start_us"] + s["us"] for s in steps]
        assert all(s["start_us"] >= end - 1e-6 for s, end in zip(steps[1:], ends, strict=False))
        assert any(s["node"] == "result_output" for s in steps)


def test_the_trace_is_one(model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As the Trace Event Format has it: complete events with names, places and times, on tracks
    that are named; what is inside of something else lies within its time."""
    path = tmp_path / "t.json"
    assert profile(model, "--decode", "1", "--trace", str(path), "--by", "kernel") == 0
    found = json.loads(path.read_text())["traceEvents"]
    named = {e["tid"]: e["args"]["name"] for e in found if e["name"] == "thread_name"}
    assert named == {0: "decode", 1: "cpu: layers", 2: "cpu: steps"}
    spans = [e for e in found if e["ph"] == "X"]
    assert len(spans) + sum(e["ph"] == "M" for e in found) == len(found)
    assert all(e["pid"] == 1 and e["tid"] in named and e["dur"] >= 0 <= e["ts"] for e in spans)
    tracks = [[e for e in spans if e["tid"] == tid] for tid in named]
    assert [e["name"] for e in tracks[0]] == ["prompt, 3 tokens", "token 1"]
    for outer, inner in ((tracks[0], tracks[1]), (tracks[1], tracks[2])):
        for e in inner:
            end = e["ts"] + e["dur"]
            assert any(
                o["ts"] - 0.01 <= e["ts"] and end <= o["ts"] + o["dur"] + 0.01 for o in outer
            )


def test_a_device_that_tells_nothing(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["profile", "-m", model, "--tokens", "1", "-dev", "ref"]) == 1
    assert "ref: does not tell how long kernels take" in capsys.readouterr().err


def test_tables_that_there_are_not(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        profile(model, "--by", "op,colour")
    assert caught.value.code == 2
    assert "must be some of op, layer, node, kernel" in capsys.readouterr().err
