"""llama-py-bench: which tests are run, what they do, and the formats."""

from __future__ import annotations

import csv
import io
import json
import re
import sqlite3

import pytest

from llama_py.context import Context
from llama_py_tools.bench import bench
from llama_py_tools.bench.output import bytes_text, count_text
from llama_py_tools.bench.params import BenchParams, combinations
from tests.support.commands import run, tiny_model


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(tiny_model(tmp_path_factory.mktemp("bench")))


def measured(capsys: pytest.CaptureFixture[str], model: str, *args: str) -> str:
    common = ["-m", model, "-dev", "ref", "-r", "2", "-t", "1"]
    assert bench.main([*common, *args]) == 0
    return capsys.readouterr().out


def test_combinations() -> None:
    options = BenchParams(
        n_prompt=(8, 0), n_gen=(4,), pg=((2, 1),), n_depth=(0, 16), threads=(1, 2)
    )
    found = [(t.threads, t.n_depth, t.n_prompt, t.n_gen) for t in combinations(options)]
    kinds = [(8, 0), (0, 4), (2, 1)]
    assert found == [(t, d, p, g) for t in (1, 2) for d in (0, 16) for p, g in kinds]


def test_what_is_decoded(
    model: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    seen: list[tuple[int, int]] = []  # position, tokens
    decode = Context.decode

    def note(self: Context, tokens: list[int], logits: str = "last") -> object:
        assert logits == "last"
        seen.append((self.memory.seq_pos_max(0) + 1, len(tokens)))
        return decode(self, tokens, logits)

    monkeypatch.setattr(Context, "decode", note)
    measured(capsys, model, "-p", "0", "-n", "0", "-pg", "5,3", "-d", "3", "-b", "4")
    warm_up = [(0, 4), (4, 1), (5, 1), (6, 1)]
    work = [(3, 4), (7, 1), (8, 1), (9, 1), (10, 1)]
    assert seen == [*warm_up, (0, 3), *work, *work]  # the second run starts from a saved state
    seen.clear()
    measured(capsys, model, "-p", "5", "-n", "0", "--no-warmup")
    assert seen == [(0, 5), (0, 5)]


def test_new_contexts(
    model: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each run decodes in a context of its own, and the time includes its creation."""
    seen: list[tuple[Context, int]] = []
    decode, now, took = Context.decode, [0.0], {"decode": 1.0, "create": 4.0}

    def note(self: Context, tokens: list[int], logits: str = "last") -> object:
        seen.append((self, len(tokens)))
        now[0] += took["decode"]
        return decode(self, tokens, logits)

    create = Context.__init__

    def created(self: Context, *args: object, **options: object) -> None:
        now[0] += took["create"]
        create(self, *args, **options)

    monkeypatch.setattr(Context, "decode", note)
    monkeypatch.setattr(Context, "__init__", created)
    monkeypatch.setattr(bench, "clock", lambda: now[0])
    both = ("-p", "5", "-n", "0", "-d", "2", "--new-context", "0,1", "-o", "json")
    old, new = json.loads(measured(capsys, model, *both))
    assert [old["samples_ns"], new["samples_ns"]] == [[1e9, 1e9], [5e9, 5e9]]
    assert [old["new_context"], new["new_context"]] == [False, True]
    assert [n for _, n in seen[4:]] == [5, 2, 5, 5]  # warm-up, depth (its state is kept), runs
    assert len({id(ctx) for ctx, n in seen[4:]}) == 3
    table = measured(capsys, model, *both[:-2])
    assert "| pp5 @ d2 new |" in re.sub(" +", " ", table)


def test_markdown_as_a_process(model: str) -> None:
    args = ("-m", model, "-dev", "ref", "-p", "4", "-n", "2", "-pg", "3,1", "-r", "1", "-b", "2,4")
    done = run("llama-py-bench", *args, "--progress")
    assert done.returncode == 0
    rows = [[c.strip() for c in x.strip("|").split("|")] for x in done.stdout.splitlines() if x]
    titles = ["model", "size", "params", "backend", "threads", "n_batch", "dev", "compute", "test"]
    assert rows[0] == [*titles, "t/s"]
    assert [row[5] for row in rows[2:8]] == ["2"] * 3 + ["4"] * 3
    assert [row[8] for row in rows[2:5]] == ["pp4", "tg2", "pp3+tg1"]
    assert all(row[0] == "llama ?B (guessed) all F32" and row[3] == "REF" for row in rows[2:8])
    assert all(row[7].endswith(" MiB") and row[9].endswith(" ± 0.00") for row in rows[2:8])
    assert rows[8][0].startswith("version: ")
    assert "benchmark 6/6: run 1/1" in done.stderr.splitlines()


def test_json(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    first, second = json.loads(measured(capsys, model, "-p", "4", "-n", "2", "-o", "json"))
    assert (first["n_prompt"], first["n_gen"], second["n_prompt"], second["n_gen"]) == (4, 0, 0, 2)
    assert first["compute_size"] > 0
    assert len(first["samples_ns"]) == len(first["samples_ts"]) == 2
    a, b = first["samples_ts"]
    assert first["samples_ns"] == [round(4e9 / a), round(4e9 / b)]
    assert first["avg_ts"] == pytest.approx((a + b) / 2)
    assert first["stddev_ts"] == pytest.approx(abs(a - b) / 2**0.5)
    assert json.loads(measured(capsys, model, "-p", "0", "-n", "0", "-o", "json")) == []


def test_lines_csv_and_sql(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    tests = ("-p", "4", "-n", "2")
    lines = [json.loads(x) for x in measured(capsys, model, *tests, "-o", "jsonl").splitlines()]
    rows = list(csv.DictReader(io.StringIO(measured(capsys, model, *tests, "-o", "csv"))))
    database = sqlite3.connect(":memory:")
    database.executescript(measured(capsys, model, *tests, "-o", "sql"))
    stored = database.execute("SELECT n_prompt, n_gen, repack, model_type FROM llama_bench")
    assert [(x["n_prompt"], x["n_gen"], int(x["repack"]), x["model_type"]) for x in lines] == [
        (int(r["n_prompt"]), int(r["n_gen"]), int(r["repack"]), r["model_type"]) for r in rows
    ]
    called = "llama ?B (guessed) all F32"
    assert list(stored) == [(4, 0, 1, called), (0, 2, 1, called)]
    database.close()


def test_sizes() -> None:
    assert bytes_text(3 * 2**20) == "3.00 MiB"
    assert bytes_text(5 * 2**29) == "2.50 GiB"
    assert (count_text(1_500_000), count_text(8_000_000_000)) == ("1.50 M", "8.00 B")


def test_errors(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert bench.main(["-m", "missing.gguf", "-dev", "ref", "-t", "1", "-o", "json"]) == 1
    shown = capsys.readouterr()
    assert json.loads(shown.out) == []
    assert shown.err.startswith("error: missing.gguf: ")
    for wrong in (["-r", "0"], ["-p", "4-1x"], ["-o", "xml"], ["-ctk", "f16,f17"]):
        with pytest.raises(SystemExit) as caught:
            bench.main(["-m", model, *wrong])
        assert caught.value.code == 2


def test_delta_net_forms(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    rows = json.loads(
        measured(capsys, model, "-p", "4", "-n", "0", "--delta-net", "fused,chunked", "-o", "json")
    )
    assert [row["delta_net"] for row in rows] == ["fused", "chunked"]
    assert bench.main(["-m", model, "-dev", "ref", "--delta-net", "fused,unknown"]) == 1
    shown = capsys.readouterr()
    assert shown.out == ""  # nothing was measured
    says = "error: --delta-net must be auto or one of fused, "
    assert shown.err.startswith(says)
