"""llama-py-gguf convert: shards, and quantization in the same step."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import llama_py
from dev.record.tiny_checkpoints import read_records, write_folder
from ggml_py.errors import GGUFError
from llama_py.checkpoint.output import pieces
from llama_py.checkpoint.shards import SplitLimits, list_shards
from llama_py.gguf.file import GGUFFile
from llama_py_tools.gguf import main
from tests.llama_py.test_checkpoint import byte_tokenizer, plan_plain

SPLITS = read_records()["splits"]
NAMES = {"small_first_shard": "first_empty", "split_max_tensors": "max_tensors",
         "split_max_size": "max_size"}  # fmt: skip


def run(*args: object) -> int:
    return main(["convert", *map(str, args)])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A llama with a tokenizer, and rows of 256 values, which K-quants need."""
    one = read_records()["llama"]
    config = {**one["config"], "hidden_size": 256, "intermediate_size": 256, "head_dim": 64}
    tensors = {
        name: [dtype, [256 if n in (64, 96) else 128 if n == 32 else n for n in shape]]
        for name, (dtype, shape) in one["tensors"].items()
    }
    write_folder(tmp_path / "tiny", config, tensors)
    tokenizer = json.dumps(byte_tokenizer())
    (tmp_path / "tiny" / "tokenizer.json").write_text(tokenizer)
    return tmp_path / "tiny"


@pytest.mark.parametrize("recorded", SPLITS["splits"], ids=lambda r: str(r["limits"]))
def test_shards_equal_those_of_llama_cpp(recorded: dict[str, Any], tmp_path: Path) -> None:
    one = read_records()[SPLITS["of"]]
    write_folder(tmp_path / "model", one["config"], one["tensors"])
    chosen, tensors = plan_plain(tmp_path / "model")
    limits = SplitLimits(**{NAMES[name]: value for name, value in recorded["limits"].items()})
    made = {
        path.name: hashlib.sha256(b"".join(pieces(stored, part))).hexdigest()
        for path, stored, part in list_shards(Path("a.b.gguf"), chosen.out.stored, tensors, limits)
    }
    assert made == recorded["files"]


def test_a_split_model_is_the_whole_model(folder: Path, tmp_path: Path) -> None:
    """All options of shards reach the files, also when they are quantized."""
    whole, shards = tmp_path / "whole.gguf", tmp_path / "cut"
    shards.mkdir()
    for more in ((), ("--quantize", "q4_k_m")):
        assert run(folder, whole, "--pre", "llama-bpe", "--force", *more) == 0
        for limits, n in ((("--split-max-tensors", 10), 4), (("--split-max-size", "200K"), 0)):
            words = (*limits, "--no-tensor-first-split", "--force", *more)
            assert run(folder, shards / "a.gguf", "--pre", "llama-bpe", *words) == 0
            paths = sorted(shards.glob("*.gguf"))
            assert len(paths) == n + 1 if n else len(paths) > 3
            with GGUFFile.open(paths[-1]) as cut, GGUFFile.open(whole) as one:
                assert list(cut.tensors) == list(one.tensors)
                assert all(np.array_equal(cut.tensors[n].data, one.tensors[n].data)
                           for n in one.tensors)  # fmt: skip
            with GGUFFile.open(paths[0]) as cut:
                assert cut.paths == tuple(paths)
            for path in paths:
                path.unlink()


def test_an_existing_shard_is_not_overwritten(folder: Path, tmp_path: Path) -> None:
    last = tmp_path / "a-00004-of-00004.gguf"
    last.write_text("mine")
    words = (folder, tmp_path / "a.gguf", "--pre", "llama-bpe", "--split-max-tensors", "10")
    assert run(*words) == 1
    assert last.read_text() == "mine" and not [*tmp_path.glob("a-00001*")]


def test_shards_in_a_dry_run(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("--pre", "llama-bpe", "--split-max-tensors", "10", "--dry-run")
    assert run(folder, tmp_path / "a.gguf", *words) == 0
    assert "a-00004-of-00004.gguf: 9 tensors" in capsys.readouterr().out
    assert not [*tmp_path.glob("*.gguf")]


@pytest.mark.parametrize("type", ["Q4_K_M", "Q8_0"])
def test_quantize_is_convert_and_quantize(type: str, folder: Path, tmp_path: Path) -> None:
    """The file has the bytes of two steps, and a folder that is loaded so has its tensors."""
    files = {name: tmp_path / f"{name}.gguf" for name in ("plain", "two", "one")}
    assert run(folder, files["plain"], "--pre", "llama-bpe") == 0
    assert main(["quantize", str(files["plain"]), str(files["two"]), type]) == 0
    assert run(folder, files["one"], "--pre", "llama-bpe", "--quantize", type.lower()) == 0
    assert files["one"].read_bytes() == files["two"].read_bytes()
    assert run(folder, "--pre", "llama-bpe", "--quantize", type) == 0
    assert [path.name for path in folder.glob("*.gguf")] == [f"Tiny-1.6M-{type}.gguf"]


def test_a_folder_is_quantized_when_it_is_loaded(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder, and a file of F16, have the logits of the quantized file, bit for bit."""
    assert run(folder, tmp_path / "q.gguf", "--quantize", "Q4_K_M", "--pre", "llama-bpe") == 0
    assert run(folder, tmp_path / "f16.gguf", "--pre", "llama-bpe") == 0
    monkeypatch.setenv("LLAMA_PY_CACHE", str(tmp_path / "cache"))
    sources: list[tuple[Path, dict[str, Any]]] = [
        (tmp_path / "q.gguf", {}),
        (folder, {"quantize": "q4_k_m"}),
        (folder, {"quantize": "Q4_K_M", "keep_quantized": True}),
        (folder, {"quantize": "Q4_K_M", "keep_quantized": True}),
        (tmp_path / "f16.gguf", {"quantize": "Q4_K_M"}),
    ]
    logits, kept = list[bytes](), list[set[tuple[str, int]]]()
    for path, options in sources:
        with llama_py.load(path, device="ref", **options) as model, model.context(64) as ctx:
            assert model.file.tensors["blk.0.attn_q.weight"].type.name == "q4_K"
            logits.append(ctx.decode([1, 5, 9, 2])[-1].tobytes())
        files = (tmp_path / "cache" / "quantized").glob("*")
        kept.append({(file.name, file.stat().st_mtime_ns) for file in files})
    assert len({*logits}) == 1
    assert not kept[1] and len(kept[2]) == 1 and kept[3] == kept[2]
    (folder / "config.json").touch()  # another model
    with llama_py.load(folder, device="ref", quantize="Q4_K_M", keep_quantized=True):
        assert len([*(tmp_path / "cache" / "quantized").glob("*")]) == 2


def test_a_full_cache_is_no_error(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "cache").write_text("no folder")
    monkeypatch.setenv("LLAMA_PY_CACHE", str(tmp_path / "cache"))
    with llama_py.load(folder, device="ref", quantize="Q8_0", keep_quantized=True) as model:
        assert model.file.metadata["general.file_type"] == 7
    assert "cannot store" in caplog.text


def test_refused_types(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(GGUFError, match="unknown file type"):
        llama_py.load(folder, quantize="Q99")
    with pytest.raises(GGUFError, match="needs an importance matrix"):
        llama_py.load(folder, quantize="IQ2_XXS")
    assert run(folder, tmp_path / "a.gguf", "--pre", "llama-bpe", "--quantize", "IQ2_XXS") == 1
    assert "--imatrix FILE" in capsys.readouterr().err
    assert run(folder, tmp_path / "q.gguf", "--pre", "llama-bpe", "--quantize", "Q4_0") == 0
    with pytest.raises(GGUFError, match="is already q6_K"):
        llama_py.load(tmp_path / "q.gguf", quantize="Q8_0")
    with pytest.raises(SystemExit):
        run(folder, "--quantize", "Q99")
