"""Importance matrices: files in both forms, what is collected, and the command."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import llama_py
from dev import tiny_models as tiny
from ggml_py.errors import ContextError, GGUFError
from llama_py.quantize.imatrix.collect import Collector
from llama_py.quantize.imatrix.file import (
    Imatrix,
    ImatrixEntry,
    read_imatrix,
    write_imatrix,
    write_old,
)
from llama_py_tools.measure.imatrix import main
from llama_py_tools.measure.imatrix_statistics import lines

SUMS = np.arange(8, dtype=np.float32)
TEXT = "Now is the winter of our discontent made glorious summer by this sun of York. " * 20


def example() -> Imatrix:
    entries = {
        "blk.0.a.weight": ImatrixEntry(SUMS[:4], np.array([4])),
        "blk.0.b.weight": ImatrixEntry(SUMS, np.array([2, 0])),
    }
    return Imatrix("x", entries, ["one.txt", "two.txt"], 3, 2)


def test_both_forms(tmp_path: Path) -> None:
    new, old = tmp_path / "i.gguf", tmp_path / "i.dat"
    write_imatrix(new, example())
    write_old(old, example())
    first, second = read_imatrix(new), read_imatrix(old)
    assert (first.datasets, first.n_chunks, first.chunk_size) == (["one.txt", "two.txt"], 3, 2)
    assert (second.datasets, second.n_chunks, second.old) == (["two.txt"], 3, True)
    for found in (first, second):
        assert found.weights("c") is None
        assert np.allclose(found.weights("blk.0.a.weight"), SUMS[:4] / 4)
        assert np.allclose(found.weights("blk.0.b.weight"), [0, 0.5, 1, 1.5, 1, 1, 1, 1])


def test_restricted() -> None:
    assert set(example().select_entries(["a."], []).entries) == {"blk.0.a.weight"}
    assert set(example().select_entries([], ["a."]).entries) == {"blk.0.b.weight"}


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "or truncated"),
        (struct.pack("<i", 0), "it has 0 entries"),
        (struct.pack("<ii", 1, 2**30), "more bytes are needed, but the file has 8"),
        (struct.pack("<ii1siif", 1, 1, b"a", 1, 1, np.inf), "a has values that are not finite"),
    ],
)
def test_damaged_files(content: bytes, said: str, tmp_path: Path) -> None:
    path = tmp_path / "i.dat"
    path.write_bytes(content)
    with pytest.raises(GGUFError, match=said):
        read_imatrix(path)


def test_a_model_is_no_importance_matrix(tmp_path: Path) -> None:
    with pytest.raises(GGUFError, match=r"not an importance matrix: imatrix\.datasets is missing"):
        read_imatrix(tiny.write("llama", "dense", tmp_path))


def collected(path: Path, tokens: int, **params: Any) -> dict[str, Any]:
    model = llama_py.load(path, "cpu")
    ctx = model.context(n_ctx=64, **params)
    collector = Collector(list(model.placement.devices), process_output=True)
    with ctx.tap(collector.taps):
        ctx.decode([i % 60 for i in range(1, tokens + 1)], "all")
    return collector.entries


def test_what_is_collected_is_what_nodes_have(tmp_path: Path) -> None:
    """By the values of these nodes, captured without taps on products."""
    path = tiny.write("llama", "moe", tmp_path)
    found = collected(path, 20)
    model = llama_py.load(path, "cpu")
    ctx = model.context(n_ctx=64)
    names = "attn_norm-0", "ffn_norm-1", "ffn_moe_topk-1", "result_norm"
    with ctx.capture(*names) as values:
        ctx.decode([i % 60 for i in range(1, 21)], "all")
    q = found["blk.0.attn_q.weight"]
    assert q.counts.tolist() == [20]
    assert np.allclose(q.sums, (values["attn_norm-0"] ** 2).sum(0), rtol=1e-5)
    assert np.allclose(found["output.weight"].sums, (values["result_norm"] ** 2).sum(0), rtol=1e-5)
    ids, x = values["ffn_moe_topk-1"], values["ffn_norm-1"]
    gate = found["blk.1.ffn_gate_exps.weight"]
    n = model.hparams.n_expert
    assert gate.counts.tolist() == np.bincount(ids.ravel(), minlength=n).tolist()
    expected = np.stack([(x[(ids == e).any(1)] ** 2).sum(0) for e in range(n)])
    assert np.allclose(gate.sums.reshape(n, -1), expected, rtol=1e-5)
    down = found["blk.1.ffn_down_exps.weight"]
    assert down.counts.tolist() == gate.counts.tolist()


def test_ubatches_add_up(tmp_path: Path) -> None:
    path = tiny.write("llama", "dense", tmp_path)
    whole, parts = collected(path, 48), collected(path, 48, n_ubatch=16)
    assert whole.keys() == parts.keys()
    assert all(np.allclose(whole[n].sums, parts[n].sums, rtol=1e-3) for n in whole)
    assert all((whole[n].counts == parts[n].counts).all() for n in whole)


def test_few_tokens_are_left_out(tmp_path: Path) -> None:
    path = tiny.write("llama", "moe", tmp_path)
    assert all("_exps" in name for name in collected(path, 15))


def test_taps_and_hooks_exclude_each_other(tmp_path: Path) -> None:
    ctx = llama_py.load(tiny.write("llama", "dense", tmp_path), "cpu").context(n_ctx=64)
    with ctx.capture("l_out-0"), pytest.raises(ContextError, match="the capture or patch first"):
        ctx.tap(lambda res: None).__enter__()


def test_files_are_put_together() -> None:
    collector = Collector([])
    collector.add(example(), 2)
    collector.add(example(), 2)
    found = collector.result("y", 2)
    assert (found.entries["blk.0.b.weight"].sums == 2 * SUMS).all()
    assert found.entries["blk.0.b.weight"].counts.tolist() == [4, 0]
    other = Imatrix("z", {"blk.0.a.weight": ImatrixEntry(SUMS, np.array([1]))})
    with pytest.raises(ContextError, match=r"z: blk\.0\.a\.weight has 8 sums of 1 matrices"):
        collector.add(other, 2)


def test_statistics() -> None:
    found = list(lines(example()))
    assert found[0] == "x: 2 tensors, 3 chunks"
    assert found[2].split()[:4] == ["0", "a", "1.50", "0.0000"]
    assert found[3].split()[:3] == ["0", "b", "3.00"]


@pytest.fixture
def text(tmp_path: Path) -> Path:
    (tmp_path / "text.txt").write_text(TEXT)
    return tmp_path / "text.txt"


ARGS = ("-c", "64", "-b", "128", "-t", "2", "-dev", "cpu")


def test_the_command(text: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of the demo model: chunks, copies on the way, and going on from a file."""
    first, second = tmp_path / "a.gguf", tmp_path / "b.gguf"
    common = ("-f", str(text), *ARGS)
    assert main([*common, "-o", str(first), "--chunks", "3", "--save-frequency", "2"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("[1]") and "Final estimate: PPL = " in out
    found, early = read_imatrix(first), read_imatrix(f"{first}.at_2")
    assert (found.n_chunks, found.chunk_size, found.datasets) == (3, 64, [str(text)])
    assert early.n_chunks >= 2
    experts = found.entries["blk.0.ffn_up_exps.weight"].counts
    assert experts.sum() % (3 * 64) == 0 and len(experts) > 1
    more = ("--no-ppl", "--chunk", "3", "--chunks", "1", "--in-file", str(first))
    assert main([*common, *more, "-o", str(second)]) == 0
    assert read_imatrix(second).n_chunks == 4
    assert main(["--in-file", str(first), "--in-file", str(second), "-o", str(second)]) == 0
    assert read_imatrix(second).n_chunks == 7
    assert main(["--in-file", str(second), "--show-statistics"]) == 0
    assert "ffn_up_exps" in capsys.readouterr().out


def test_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    for args, said in (
        (["-m", "x"], "set a text with -f FILE"),
        (["--show-statistics"], "needs one --in-file"),
        (["--output-format", "csv"], "--output-format"),
        (["--chunks", "-2"], "--chunks"),
    ):
        with pytest.raises(SystemExit) as ended:
            main(args)
        assert ended.value.code == 2
        assert said in capsys.readouterr().err
