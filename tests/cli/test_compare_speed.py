"""dev/compare/compare_speed.py with engines that follow a script: the order of runs, who is left
out, what is kept and what is made of it; and ours in its worker."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from dev.compare import compare_speed
from dev.compare.speed import peer, plot, results, table
from dev.compare.speed import test as plan
from dev.compare.speed.compare import Comparison
from dev.compare.speed.engine import random_tokens
from dev.compare.speed.neighbours import neighbours
from dev.compare.speed.peer import Peer
from dev.compare.speed.peers import ours
from dev.compare.speed.process import Worker, WorkerDied, WorkerError, worker_command
from dev.compare.speed.results import Record
from dev.compare.speed.test import Test
from tests.support.commands import ROOT, clean_environment, tiny_model
from tests.support.limits import SECONDS

SCRIPTED = Path(__file__).parent / "scripted_peer.py"


@pytest.fixture
def python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What is started instead of a peer's Python; it writes requests down."""
    monkeypatch.setenv("SCRIPTED_LOG", str(tmp_path / "log"))
    monkeypatch.setattr("dev.compare.speed.compare.PAUSE", 0)
    path = tmp_path / "python"
    path.write_text(f'#!/bin/sh\nexec "{sys.executable}" -S "{SCRIPTED}" "$@"\n')
    path.chmod(0o755)
    return path


def peers(python: Path, *scripts: str) -> list[Peer]:
    return [Peer(script.partition(",")[0], script, str(python)) for script in ("ours", *scripts)]


def compared(python: Path, *scripts: str, **how: Any) -> Comparison:
    model = python.parent / "model.gguf"
    model.write_bytes(b"x" * 900)
    return Comparison(model, 1, peers(python, *scripts), **{"repetitions": 2, **how})


def log(python: Path) -> list[tuple[str, dict[str, Any]]]:
    lines = (line.split(" ", 1) for line in (python.parent / "log").read_text().splitlines())
    return [(name, json.loads(request)) for name, request in lines]


def test_runs_alternate_and_the_first_round_does_not_count(python: Path) -> None:
    (record,) = compared(python, "fast", "slow").run([Test("pp", 8)])
    assert record.runs == {"ours": [2.0, 2.0], "fast": [1.0, 1.0], "slow": [4.0, 4.0]}
    assert [name for name, r in log(python) if r["do"] == "pp"] == ["ours", "fast", "slow"] * 3
    assert record.ratio == 0.5
    assert record.value("slow") == 2.0


def test_tests_of_a_kind_share_a_context(python: Path) -> None:
    tests = [Test("pp", 300), Test("tg", 4, depth=500), Test("at once", 2), Test("batch", 3, 0, 5)]
    found = list(compared(python, "fast").run(tests))
    assert [r.test for r in found] == [tests[0], tests[2], tests[1], tests[3]]
    contexts = [r for name, r in log(python) if r["do"] == "context" and name == "ours"]
    assert [(c["depth"], c["n_ctx"], c["n_seqs"]) for c in contexts] == [
        (0, 512, 1),
        (500, 512, 1),
        (0, 256, 5),
    ]


def test_busy_processes_are_there_for_their_test_only(
    python: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    alive: list[int] = []

    @contextmanager
    def counted(n: int) -> Iterator[None]:
        before = set(children())
        with neighbours(n):
            alive.append(len(set(children()) - before))
            yield
        assert not set(children()) - before

    monkeypatch.setattr("dev.compare.speed.compare.neighbours", counted)
    tests = plan.with_neighbours([Test("pp", 8), Test("first", 8)], [0, 2])
    assert [t.busy for t in tests] == [0, 2, 0]
    records = list(compared(python, "fast").run(tests[:2]))
    assert alive == [0, 2]
    assert [r.test.label for r in records] == ["pp8", "pp8, 2 busy"]
    assert table.notes(records)[-1] == (
        "model.gguf, pp8, 2 busy against none (-t 1): ours 1.00, fast 1.00"
    )


def children() -> list[int]:
    return [child.pid for child in psutil.Process().children()]


def test_tests_of_one_depth_are_finished(python: Path) -> None:
    times = iter([False, False, True])
    compare = compared(python, "fast", over=lambda: next(times, True))
    tests = [Test("pp", 1), Test("pp", 2, depth=3), Test("tg", 2, depth=3), Test("pp", 2, depth=4)]
    assert [r.test for r in compare.run(tests)] == tests[:1]
    times = iter([False, False, False])
    assert [r.test for r in compare.run(tests)] == tests[:3]


def test_a_peer_that_does_not_load_is_left_out(
    python: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (record,) = compared(python, "fast,dies load", "slow").run([Test("pp", 8)])
    assert list(record.runs) == ["ours", "slow"]
    assert "left out: fast: the worker died, exit status 3" in capsys.readouterr().err


def test_without_a_peer_or_ours_there_is_nothing_to_compare(python: Path) -> None:
    with pytest.raises(WorkerError, match="the worker died"):
        list(compared(python, "fast,dies load", "slow,dies check").run([Test("pp", 8)]))
    broken = compared(python, "fast")
    broken.peers = [Peer("ours", "ours,no tg", str(python)), *broken.peers[1:]]
    with pytest.raises(WorkerError, match="ours: ValueError: tg is not for me"):
        list(broken.run([Test("tg", 8)]))


def test_a_peer_is_left_out_of_what_it_cannot_do(
    python: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tests = [Test("batch", 2, n_seqs=2), Test("batch", 3, n_seqs=2), Test("pp", 8)]
    first, second, third = compared(python, "fast,no batch", "slow").run(tests)
    assert list(first.runs) == list(second.runs) == ["ours", "slow"]
    assert first.left_out == {"fast": "fast: ValueError: batch is not for me"}
    assert list(third.runs) == ["ours", "fast", "slow"]
    assert capsys.readouterr().err.count("left out") == 1


def test_a_peer_that_dies_in_a_test_is_started_again(python: Path) -> None:
    tests = [Test("tg", 2), Test("pp", 4), Test("pp", 8, depth=3)]
    found = list(compared(python, "fast,dies tg", "slow").run(tests))
    assert [list(r.runs) for r in found] == [
        ["ours", "slow"],
        ["ours", "slow"],
        ["ours", "fast", "slow"],
    ]


def test_cold_runs_have_a_process_each(python: Path) -> None:
    first, memory = compared(python, "fast", "slow,no peak").run(
        [Test("first", 8), Test("memory", 8)]
    )
    assert all(len(values) == 2 for values in first.runs.values())
    assert memory.runs == {"ours": [4096.0], "fast": [4096.0]}
    assert memory.floor == 900 + 100
    assert "slow" in memory.left_out
    assert sum(r["do"] == "load" and name == "fast" for name, r in log(python)) == 1 + 2 + 1


def test_different_answers_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    from dev.compare.speed.compare import warn_if_different

    warn_if_different({"ours": 1, "peer": 1})
    assert capsys.readouterr().err == ""
    warn_if_different({"ours": 1, "peer": 2})
    assert "different tokens" in capsys.readouterr().err
    assert random_tokens(3, 10) == random_tokens(5, 10)[:3]


def test_a_process_that_ends_is_an_error() -> None:
    with Worker(Peer("peer", "no such engine", sys.executable)) as worker:
        with pytest.raises(WorkerError, match="ModuleNotFoundError"):
            worker.load("x", 1)
        worker.process.kill()
        worker.process.wait(SECONDS)
        with pytest.raises(WorkerDied, match="the worker died"):
            worker.ask("check")


def test_ours_answers_line_by_line(tmp_path: Path) -> None:
    how = {"n_ctx": 256, "n_batch": 16, "n_ubatch": 16}
    requests: list[dict[str, Any]] = [
        {"do": "load", "model": str(tiny_model(tmp_path)), "threads": 1}, {"do": "check"},
        {"do": "context", "depth": 20, "n_seqs": 2, **how}, {"do": "pp", "n": 18},
        {"do": "tg", "n": 2}, {"do": "batch", "n": 2}, {"do": "at once", "n": 3}, {"do": "cache"},
        {"do": "peak"}, {"do": "pp", "n": 1000},
    ]  # fmt: skip
    done = subprocess.run(
        worker_command(sys.executable, "ours"),
        input="\n".join(map(json.dumps, requests)),
        capture_output=True,
        text=True,
        timeout=SECONDS,
        env=clean_environment(),
    )
    load, check, context, *numbers, too_long = map(json.loads, done.stdout.splitlines())
    assert load == context == {"answer": None}
    assert 0 <= check["answer"] < 128
    assert len(numbers) == 6
    assert all(reply["answer"] > 0 for reply in numbers)
    assert "does not fit the context" in too_long["error"]


@pytest.mark.parametrize("name", ["llama-dense", "qwen35moe-moe", "gemma2-dense"])
def test_ours_goes_back_to_the_depth(tmp_path: Path, name: str) -> None:
    engine = ours.Loaded(str(tiny_model(tmp_path, name)), 1)
    engine.context(20, n_ctx=64, n_seqs=2, n_batch=16, n_ubatch=16)
    found = []
    for _ in range(2):
        engine.back()
        found.append([engine.decode([5], seq).copy() for seq in range(2)])
        engine.step([3, 4])
        engine.decode_all([1, 2])
    assert np.array_equal(found[0], found[1])
    engine.context(0, n_ctx=64)
    assert not np.array_equal(engine.decode([5]), found[0][0])


@pytest.mark.parametrize("name", ["llama-dense", "qwen35moe-moe"])
def test_what_was_read_before_a_depth_is_kept(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, how = str(tiny_model(tmp_path, name)), {"n_ctx": 64, "n_batch": 16, "n_ubatch": 16}
    read: list[int] = []
    fill = ours.Loaded.fill

    def counted(self: ours.Loaded, tokens: Sequence[int]) -> None:
        read.append(len(tokens))
        fill(self, tokens)

    monkeypatch.setattr(ours.Loaded, "fill", counted)
    engine = ours.Loaded(model, 1)
    engine.context(30, **how)
    expected = engine.decode([5]).copy()
    for threads in (2, 1):
        again = ours.Loaded(model, threads)
        for depth in (20, 30):
            again.context(depth, states=str(tmp_path / "states"), **how)
        np.testing.assert_allclose(again.decode([5]), expected, atol=1e-4)
        again.back()
        np.testing.assert_allclose(again.decode([5]), expected, atol=1e-4)
    assert read == [30, 20, 10]


def test_a_depth_has_a_folder_for_each_model(python: Path) -> None:
    compare = compared(python, "fast", states=python.parent / "kept")
    list(compare.run([Test("pp", 8), Test("pp", 8, depth=3)]))
    contexts = [r for name, r in log(python) if r["do"] == "context" and name == "fast"]
    assert [c.get("states") for c in contexts] == [None, str(python.parent / "kept/model.gguf")]


def test_options_and_tests() -> None:
    args = compare_speed.parse(
        [
            "-m",
            "x",
            "-p",
            "8",
            "-n",
            "0",
            "-d",
            "0,4",
            "-npl",
            "3",
            "--at-once",
            "1,2",
            "-ctk",
            "f16,q8_0",
            "--first",
            "5",
            "--memory",
            "6",
            "-ntg",
            "7",
        ]
    )
    labels = [t.label for t in compare_speed.tests(args)]
    at_0 = ["pp8", "1 at once", "2 at once", "3 x tg7"]
    first = [f"first token, {when}, pp5" for when in ("warm", "new context", "cold")]
    rest = [*first, "peak memory, pp6"]
    plain = [*at_0, *(f"{label} @ d4" for label in at_0), *rest]
    assert labels == [text for label in plain for text in (label, f"{label}, q8_0/f16")]
    whole = compare_speed.tests(compare_speed.parse(["-m", "x", "--matrix"]))
    assert [t.label for t in whole] == [
        "pp512",
        "tg128",
        "1 at once",
        "2 at once",
        "4 at once",
        "8 at once",
        "8 x tg64",
        "tg32 @ d4096",
        "tg32 @ d16384",
        "pp512 @ d16384",
    ]
    assert len(plan.groups(whole)) == 4
    with pytest.raises(SystemExit):
        compare_speed.parse(["-m", "x", "--budget", "3"])


def record(test: Test, ours: float, *others: float, model: str = "m", **how: Any) -> Record:
    names = ("ours", "a", "b")
    runs = {name: [value] for name, value in zip(names, (ours, *others), strict=False)}
    return Record(model, "a processor", 1, test, runs, **how)


def test_best_peer_counts_and_less_is_better_for_time_and_memory() -> None:
    assert record(Test("tg", 8), 1.0, 2.0, 4.0).ratio == 2.0
    assert record(Test("first", 8), 1.0, 2.0, 4.0).ratio == 2.0
    assert record(Test("memory", 8), 200.0, 100.0, 400.0).ratio == 0.5
    assert record(Test("tg", 8), 1.0).ratio is None
    rows = [record(Test("tg", 8), 1.0, 2.0), record(Test("pp", 8), 1.0, 8.0)]
    assert results.mean_ratio([*rows, record(Test("memory", 8), 1.0, 100.0)]) == pytest.approx(4.0)


def test_records_are_read_back_and_put_together(tmp_path: Path) -> None:
    path = tmp_path / "runs.jsonl"
    one = record(Test("tg", 8), 3.0, left_out={"a": "a: no"})
    two, other = record(Test("tg", 8), 1.0, 2.0), record(Test("tg", 8, depth=4), 1.0, 2.0)
    for r in (one, two, other):
        compare_speed.keep(r, path)
    assert list(results.read(path)) == [one, two, other]
    both, last = results.merged(results.read(path))
    assert both.runs == {"ours": [3.0, 1.0], "a": [2.0]}
    assert both.left_out == {}
    assert last == other
    path.write_text("{}\n")
    with pytest.raises(ValueError, match=r"runs\.jsonl:1: not a line of --json"):
        list(results.read(path))


def test_page_has_a_table_for_each_model() -> None:
    rows = [
        record(Test("at once", 1), 1.0, 2.0), record(Test("at once", 4), 2.0, 8.0),
        record(Test("memory", 8), 2.0**20, 2.0**21, floor=2**19),
        record(Test("tg", 8), 1.0, left_out={"a": "a: no"}, model="n"),
    ]  # fmt: skip
    page = table.page(rows, "plot.svg")
    assert page.count("ours / best |") == 2
    assert "## m\n" in page
    assert "## n\n" in page
    assert "![Ratio of each test](plot.svg)" in page
    assert "* 4 at once against 1 (-t 1): ours 2.00, a 4.00\n" in page
    assert "against file and caches (0 MiB): ours 2.00, a 4.00\n" in page
    assert "* left out of tg8: a: no\n" in page


def rates(model: str, ours: float, a: float, threads: int = 1, **test: Any) -> Record:
    planned = Test("pp", 8, **test)
    return Record(model, "cpu", threads, planned, {"ours": [ours], "a": [a]})


def test_overview_has_a_line_for_each_model() -> None:
    rows = [rates("m", 1, 2), rates("m", 1, 3, threads=2), rates("n", 2, 1)]
    rows += [rates("n", 1, 4, depth=9), rates("o", 1, 2)]
    lines = table.overview(rows)
    assert lines[0].endswith("threads. 5 tests: smallest ratio 0.500, geometric mean 1.89.")
    assert lines[2:] == [
        "| model | pp8 |",
        "|---|---:|",
        "| m | 3.00, 2.00 |",
        "| n | -, 0.50 |",
        "| o | -, 2.00 |",
    ]


def test_rates_have_a_line_for_each_model() -> None:
    rows = [rates("m", 1, 2), rates("m", 1, 2, threads=2), rates("n", 0.01, 0.02, threads=2)]
    assert table.rates(rows) == [
        "Tokens/s with 2 threads, in brackets the best engine's.",
        "",
        "| model | pp8 |",
        "|---|---:|",
        "| m | 8.0 (4.0) |",
        "| n | 800 (400) |",
    ]


def test_the_page_has_the_tables_of_its_data() -> None:
    """`--table docs/benchmarks.jsonl --write docs/benchmarks.md` does not change the page."""
    records = results.merged(results.read(ROOT / "docs" / "benchmarks.jsonl"))
    text = (ROOT / "docs" / "benchmarks.md").read_text("utf-8")
    assert table.renewed(text, records, "benchmarks.svg") == text
    assert table.has_picture(text)


def test_a_page_with_an_overview_has_no_tables_by_model() -> None:
    text = f"a\n{table.OVERVIEW}\nold\n{table.END}\nb\n"
    page = table.renewed(text, [rates("m", 1, 2), rates("n", 1, 5)], "plot.svg")
    assert page.startswith("a\n") and page.endswith("b\n")
    assert "| n | 5.00 |" in page and "(plot.svg)" in page
    assert "old" not in page and "## m" not in page


def test_text_around_the_tables_of_a_page_stays() -> None:
    first, later = [rates("m", 1, 2)], [rates("m", 1, 2), rates("n", 1, 5)]
    page = table.renewed("", first)
    assert page == table.page(first) and "Overview" not in page
    page = table.renewed("# Mine\n\n" + page + "\nThe end.\n", later)
    assert page.startswith("# Mine\n\n# Measured") and page.endswith("\n\nThe end.\n")
    assert "## Overview" in page and "## n\n" in page
    assert page == table.renewed(page, later)


def test_a_budget_is_kept_and_the_rest_is_run_later(
    python: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(peer, "asked", lambda _: peers(python, "fast", "slow"))
    model, runs = python.parent / "model.gguf", python.parent / "runs.jsonl"
    model.write_bytes(b"")
    command = ["-m", str(model), "-t", "1", "-p", "4,8", "-n", "0", "-r", "1", "--json", str(runs)]
    times = iter([0.0, 0.0, 0.0, 0.0, 61.0])
    monkeypatch.setattr(compare_speed.time, "monotonic", lambda: next(times))
    compare_speed.main([*command, "--budget", "1"])
    assert [r.test.n for r in results.read(runs)] == [4]
    assert "1 of 2 tests are left" in capsys.readouterr().err
    monkeypatch.setattr(compare_speed.time, "monotonic", lambda: 0.0)
    compare_speed.main([*command, "--budget", "1", "--peers", "slow"])
    assert [r.test.n for r in results.read(runs)] == [4, 8]
    assert list(list(results.read(runs))[1].runs) == ["ours", "slow"]
    said = capsys.readouterr()
    assert "left; the same" not in said.err
    assert "geometric mean of ours / best: 1.000" in said.out  # 0.5 and 2
    compare_speed.main(["--table", str(runs), "--write", str(model.with_suffix(".md"))])
    out = capsys.readouterr().out
    cells = [[c.strip() for c in line.split("|")] for line in out.splitlines()]
    assert ["", "1", "pp8", "4.00", "-", "2.00", "2.000", ""] in cells
    assert "geometric mean of ours / best: 1.000" in out
    assert " pp4 |" in model.with_suffix(".md").read_text()


def test_a_model_that_does_not_run_leaves_the_others(
    python: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    dead = iter([peers(python, "fast,dies load"), peers(python, "fast")])
    run = Comparison.run

    def with_other_peers(self: Comparison, tests: Any) -> Any:
        self.peers = next(dead)
        return run(self, tests)

    monkeypatch.setattr(Comparison, "run", with_other_peers)
    with pytest.raises(SystemExit) as e:
        compare_speed.main(["-m", "a", "b", "-t", "1", "-p", "4", "-n", "0", "-r", "1"])
    assert e.value.code == 1
    said = capsys.readouterr()
    assert "error: fast: the worker died" in said.err
    assert "pp4" in said.out.partition("\nb\n")[2]


def test_errors_are_one_line(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=r"error: .*no such"):
        compare_speed.main(["--table", str(tmp_path / "no such")])


def test_picture_has_the_ratios(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [record(Test("tg", 8), 1.0, 2.0), record(Test("pp", 8), 1.0, 0.5, model="n")]
    rows += [rates("m", 1, 3, threads=2), record(Test("tg", 9), 1.0, left_out={"a": "a: no"})]
    assert plot.points(rows) == {"tg8": [(1, 2.0)], "pp8": [(1, 0.5), (2, 3.0)]}
    with pytest.raises(ValueError, match="nothing to draw"):
        plot.draw([], tmp_path / "x.svg")
    with monkeypatch.context() as m:
        m.setattr(plot, "available", lambda: False)
        with pytest.raises(ValueError, match="needs matplotlib"):
            plot.draw(rows, tmp_path / "x.svg")
    pytest.importorskip("matplotlib")
    plot.draw(rows, tmp_path / "x.svg")
    assert (tmp_path / "x.svg").read_text().startswith("<?xml")
