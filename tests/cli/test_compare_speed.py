"""tools/compare_speed.py: the worker's protocol, the order of runs, and what is compared."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.commands import clean_environment, tiny_model

SCRIPT = Path(__file__).parents[2] / "tools" / "compare_speed.py"


@pytest.fixture(scope="module")
def script() -> Any:
    spec = importlib.util.spec_from_file_location("compare_speed", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["compare_speed"] = module
    spec.loader.exec_module(module)
    return module


def test_a_worker_answers_line_by_line(tmp_path: Path) -> None:
    how = {
        "model": str(tiny_model(tmp_path)), "threads": 1, "repack": True, "n_ctx": 32,
        "n_batch": 4, "n_ubatch": 4,
    }  # fmt: skip
    requests: list[dict[str, Any]] = [
        {"do": "load", "n": 0, "how": how}, {"do": "check", "n": 0}, {"do": "pp", "n": 6},
        {"do": "tg", "n": 2}, {"do": "pp", "n": 1000},
    ]  # fmt: skip
    done = subprocess.run(
        [sys.executable, str(SCRIPT), "--worker", "ours"],
        input="\n".join(map(json.dumps, requests)), capture_output=True, text=True,
        timeout=600, env=clean_environment(),
    )  # fmt: skip
    load, check, pp, tg, too_long = map(json.loads, done.stdout.splitlines())
    assert load == {"answer": None}
    assert 0 <= check["answer"] < 128
    assert pp["answer"] > 0
    assert tg["answer"] > 0
    assert "does not fit the context" in too_long["error"]


class FakeWorker:
    def __init__(self, name: str, seconds: list[float], log: list[str]) -> None:
        self.name, self.seconds, self.log = name, iter(seconds), log

    def ask(self, do: str, n: int) -> float:
        self.log.append(f"{self.name} {do}{n}")
        return next(self.seconds)


def test_runs_alternate_and_the_first_round_does_not_count(
    script: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(script, "PAUSE", 0)
    log: list[str] = []
    workers = [FakeWorker("a", [9, 2, 1, 4], log), FakeWorker("b", [9, 1, 1, 1], log)]
    assert script.medians(workers, "pp", 8, 3) == {"a": 4.0, "b": 8.0}
    assert log == ["a pp8", "b pp8"] * 4


def test_the_better_peer_counts(script: Any) -> None:
    row = script.Row(1, "pp8", {"ours": 6.0, "repacked": 4.0, "plain": 3.0})
    assert row.ratio == 1.5


def test_different_answers_are_told(script: Any, capsys: pytest.CaptureFixture[str]) -> None:
    script.warn_if_different({"ours": 1, "peer": 1})
    assert capsys.readouterr().err == ""
    script.warn_if_different({"ours": 1, "peer": 2})
    assert "different tokens" in capsys.readouterr().err
    assert script.random_tokens(3, 10) == script.random_tokens(5, 10)[:3]


class DeadWorker(FakeWorker):
    def __init__(self, script: Any, name: str, engine: str, *, dead: bool) -> None:
        super().__init__(name, [], [])
        self.engine, self.error, self.dead = engine, script.WorkerError, dead

    def ask(self, do: str, n: int = 0, **how: Any) -> int:
        if self.dead:
            raise self.error(f"{self.name}: the worker died")
        return 7


def test_a_peer_that_dies_is_left_out(script: Any, capsys: pytest.CaptureFixture[str]) -> None:
    ours = DeadWorker(script, "ours", "ours", dead=False)
    peers = [
        DeadWorker(script, name, "peer", dead=dead)
        for name, dead in zip(script.PEERS, (True, False), strict=True)
    ]
    left, chosen = script.running([ours, *peers], {})
    assert left == [ours, peers[1]]
    assert chosen == {"ours": 7, script.PEERS[1]: 7}
    assert "left out: llama.cpp repacked: the worker died" in capsys.readouterr().err


def test_without_a_peer_there_is_nothing_to_compare(script: Any) -> None:
    ours = DeadWorker(script, "ours", "ours", dead=False)
    peers = [DeadWorker(script, name, "peer", dead=True) for name in script.PEERS]
    with pytest.raises(script.WorkerError, match="the worker died"):
        script.running([ours, *peers], {})


def test_a_process_that_ends_is_an_error(script: Any) -> None:
    with script.Worker("peer", "no such engine", sys.executable) as worker:
        worker.process.wait(60)
        with pytest.raises(script.WorkerError, match="the worker died"):
            worker.ask("check")
