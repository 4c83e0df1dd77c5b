"""llama-py-graph profile: times of steps, as tables, JSON and a trace."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from llama_py_tools.graph import main
from tests.support.commands import tiny_model


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


# As Chrome's "Trace Event Format" has complete events and the metadata that Perfetto reads.
EVENT = {
    "type": "object",
    "required": ["name", "ph", "pid", "tid"],
    "properties": {
        "name": {"type": "string", "minLength": 1}, "ph": {"enum": ["X", "M"]},
        "pid": {"const": 1}, "tid": {"type": "integer", "minimum": 0}, "cat": {"type": "string"},
        "args": {"type": "object"},
        "ts": {"type": "number", "minimum": 0}, "dur": {"type": "number", "minimum": 0},
    },
    "additionalProperties": False,
    "if": {"properties": {"ph": {"const": "X"}}},
    "then": {"required": ["cat", "ts", "dur"]},
    "else": {
        "required": ["args"],
        "properties": {"name": {"enum": ["process_name", "thread_name", "thread_sort_index"]}},
        "not": {"anyOf": [{"required": ["ts"]}, {"required": ["dur"]}]},
    },
}  # fmt: skip
TRACE = {
    "type": "object",
    "required": ["traceEvents"],
    "properties": {
        "displayTimeUnit": {"enum": ["ms", "ns"]},
        "otherData": {"type": "object", "additionalProperties": {"type": "string"}},
        "traceEvents": {"type": "array", "minItems": 1, "items": EVENT},
    },
    "additionalProperties": False,
}


def trace(model: str, path: Path, *args: str) -> dict[str, list[dict[str, Any]]]:
    """The spans of each track by its name, checked."""
    assert profile(model, "--decode", "1", "--trace", str(path), "--by", "kernel", *args) == 0
    found = json.loads(path.read_text())
    jsonschema.validate(found, TRACE)
    events = found["traceEvents"]
    named = {e["tid"]: e["args"]["name"] for e in events if e["name"] == "thread_name"}
    tracks: dict[str, list[dict[str, Any]]] = {name: [] for name in named.values()}
    for e in events:
        if e["ph"] == "X":
            tracks[named[e["tid"]]].append(e)
    for spans in tracks.values():
        ends_in_turn(spans)
    return tracks


def ends_in_turn(spans: list[dict[str, Any]]) -> None:
    """On a track, what begins inside of something else also ends there, as floats are added."""
    open_until: list[float] = []
    for e in sorted(spans, key=lambda e: (e["ts"], -e["dur"])):
        while open_until and open_until[-1] <= e["ts"]:
            open_until.pop()
        end = e["ts"] + e["dur"]
        assert not open_until or end <= open_until[-1], e
        open_until.append(end)


def within(outer: list[dict[str, Any]], inner: list[dict[str, Any]], slack: float = 0.01) -> None:
    for e in inner:
        end = e["ts"] + e["dur"]
        assert any(
            o["ts"] - slack <= e["ts"] and end <= o["ts"] + o["dur"] + slack for o in outer
        ), e


def test_the_trace_is_one(model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tracks = trace(model, tmp_path / "t.json", "-t", "2")
    assert [*tracks] == [
        "decode",
        "cpu: splits",
        "cpu: layers",
        "cpu: steps",
        "cpu: thread 0",
        "cpu: thread 1",
    ]
    assert [e["name"] for e in tracks["decode"]] == ["prompt, 3 tokens", "token 1"]
    assert all(e["cat"] == "split" for e in tracks["cpu: splits"])
    within(tracks["decode"], tracks["cpu: splits"])
    within(tracks["cpu: layers"], tracks["cpu: steps"])
    within(tracks["cpu: splits"], tracks["cpu: steps"], 100)  # of two clocks
    steps, first, second = (tracks[f"cpu: {t}"] for t in ("steps", "thread 0", "thread 1"))
    within(steps, first)
    assert [e["name"] for e in steps] == [e["name"] for e in first] == [e["name"] for e in second]


def test_splits_and_copies_are_in_the_trace(
    model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tracks = trace(model, tmp_path / "t.json", "-dev", "ref,cpu", "-ngl", "2")
    assert [*tracks][:2] == ["decode", "cpu: splits"] and "ref: splits" in tracks
    copies = [e for e in tracks["ref: splits"] if e["cat"] == "copy"]
    assert len(copies) >= 2 and all(e["args"]["bytes"] > 0 for e in copies)
    assert any(e["name"] == "copy inp_pos" for e in copies)
    assert not any(e["name"].startswith("copy") for e in tracks["cpu: steps"])
    for head in [x for x in capsys.readouterr().out.splitlines() if " copied between " in x]:
        assert re.match(r"  \d+ splits; 0\.\d+ MiB copied between devices in [\d.]+ ms$", head)


@pytest.mark.usefixtures("small_limits")
def test_rates_and_limits(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A product's flops and bytes, once for each node; what a device can do is measured."""
    assert profile(model, "--by", "op", "--limits") == 0
    out = capsys.readouterr().out
    assert re.search(r"^  limits of cpu: [\d.]+ GB/s, \d+ GFLOP/s$", out, re.M)
    (product,) = (line for line in out.splitlines() if line.startswith("  MUL_MAT f32 "))
    assert re.search(r" +[\d.]+ +[\d.]+ +\d+%$", product), product
    assert profile(model, "--json") == 0
    (run,) = json.loads(capsys.readouterr().out)
    head = [s for s in run["steps"] if s["node"] == "result_output"]
    assert sum(s["flops"] for s in head) == 2 * 64 * 64  # of one output: n_embd x n_vocab
    assert sum(s["bytes"] for s in head) == 4 * (64 * 64 + 64 + 64)
    assert run["n_splits"] == 1 and run["copied_bytes"] == 0


def test_a_device_that_tells_nothing(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["profile", "-m", model, "--tokens", "1", "-dev", "ref"]) == 1
    assert "ref does not measure kernel times" in capsys.readouterr().err


def test_tables_that_there_are_not(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        profile(model, "--by", "op,colour")
    assert caught.value.code == 2
    assert "must be some of op, layer, node, kernel" in capsys.readouterr().err
