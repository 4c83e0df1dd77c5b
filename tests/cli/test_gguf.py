"""llama-py-gguf: files that are looked at, changed, cut, put together and compared."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from llama_py.gguf.file import GGUFFile
from llama_py.gguf.write import encode
from llama_py.loading.model import DEMO
from llama_py_tools.gguf import main
from llama_py_tools.gguf.sizes import parse_size
from tests.support.gguf_writer import Tensor, array, gguf, kv, write

KEYS = [
    kv("general.architecture", "str", "none"), kv("a.u8", "u8", 250), kv("a.i64", "i64", -5),
    kv("a.f32", "f32", 0.1), kv("a.bool", "bool", True), kv("a.raw", "str", b"\xff\x00x"),
    kv("a.list", "arr", array("u16", [1, 2, 3])), kv("a.texts", "arr", array("str", ["x", "y"])),
    kv("a.nested", "arr", array("arr", [array("i8", [1]), array("i8", [])])),
]  # fmt: skip
TENSORS = [Tensor(f"t{i}", (32, i + 2), 8, bytes([i]) * 34 * (i + 2)) for i in range(7)]  # q8_0


@pytest.fixture
def small(tmp_path: Path) -> Path:
    return write(tmp_path, gguf(KEYS, TENSORS), "small.gguf")


def run(*args: object) -> int:
    return main([str(a) for a in args])


def refused(capsys: pytest.CaptureFixture[str], *args: object) -> str:
    assert run(*args) == 1
    line = capsys.readouterr().err
    assert line.startswith("error: ") and line.count("\n") == 1
    return line


def test_show(small: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("show", small) == 0
    out = capsys.readouterr().out
    assert "GGUF version 3, 9 keys, 7 tensors" in out
    assert "a.list                arr[u16]   [1, 2, 3]" in out
    assert "t3" in out and "[32, 5]" in out
    assert "8.50 bits each: 7 q8_0" in out
    assert run("show", small, "-k", "a.f*", "-t", "") == 0
    assert capsys.readouterr().out.splitlines()[1:] == ["  a.f32  f32        0.10000000149011612"]


def test_show_as_json(small: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("show", small, "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["metadata"]["a.nested"] == {"kind": "arr[arr]", "value": [[1], []]}
    assert found["metadata"]["a.i64"] == {"kind": "i64", "value": -5}
    assert found["tensors"]["t2"]["ne"] == [32, 4]


def test_get(small: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("get", DEMO, "general.architecture") == 0
    assert capsys.readouterr().out == "qwen35moe\n"
    assert run("get", small, "a.texts") == 0
    assert json.loads(capsys.readouterr().out) == ["x", "y"]
    assert "similar: a.f32" in refused(capsys, "get", small, "a.f3")


def test_set_changes_nothing_else(small: Path, tmp_path: Path) -> None:
    out = tmp_path / "new.gguf"
    changes = ["a.u8=0x10", "a.bool=false", "a.f32=2.5", "new.one:arr[f64]=[1, 2.5]", "a.raw=text"]
    assert run("set", small, *changes, "--remove", "a.list", "-o", out) == 0
    with GGUFFile.open(small) as old, GGUFFile.open(out) as new:
        values = {key: new.metadata[key] for key in ("a.u8", "a.bool", "a.f32", "a.raw")}
        assert values == {"a.u8": 16, "a.bool": False, "a.f32": 2.5, "a.raw": "text"}
        np.testing.assert_array_equal(new.metadata["new.one"], [1, 2.5])
        assert new.metadata.kind("new.one") == "arr[f64]"
        kept = old.metadata.stored_values.keys() - {"a.u8", "a.bool", "a.f32", "a.raw", "a.list"}
        assert {k: new.metadata.stored_values[k] for k in kept} == {
            k: old.metadata.stored_values[k] for k in kept
        }
        assert "a.list" not in new.metadata
        for name, t in old.tensors.items():
            assert (t.type, t.ne) == (new.tensors[name].type, new.tensors[name].ne)
            np.testing.assert_array_equal(t.data, new.tensors[name].data)


def test_in_place(small: Path) -> None:
    before = small.read_bytes()
    assert run("set", small, "a.u8=251", "--in-place") == 0
    assert GGUFFile.open(small).metadata["a.u8"] == 251
    assert run("set", small, "a.u8=250", "--in-place") == 0
    assert small.read_bytes() == before


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("a.u8=256", "value must be of type u8, got 256"),
        ("a.u8=x", "must be a number of type u8, got 'x'"),
        ("a.bool=2", "must be true or false"),
        ("a.list=5", "must be a JSON array"),
        ("a.list=[70000]", "value must be of type u16, got 70000"),
        ("b=1", "key 'b' is new, so it needs a type: b:str"),
        ("b:u7=1", "unknown value type 'u7'"),
        ("b", "'b' is not a change"),
        ("general.alignment:u32=64", "general.alignment cannot be changed"),
    ],
)
def test_changes_that_are_none(
    small: Path, tmp_path: Path, change: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "new.gguf"
    assert message in refused(capsys, "set", small, change, "-o", out)
    assert not out.exists()


def test_a_file_that_is_there_stays(small: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = small.with_name("other.gguf")
    other.write_bytes(b"mine")
    assert "file already exists" in refused(capsys, "set", small, "a.u8=1", "-o", other)
    assert "file already exists" in refused(capsys, "merge", small, other)
    assert other.read_bytes() == b"mine"
    assert run("set", small, "a.u8=1", "-o", other, "--force") == 0


@pytest.mark.parametrize(
    ("how", "sizes"),
    [
        (["--split-max-tensors", 3], [3, 3, 1]),
        (["--split-max-size", "320"], [2, 1, 1, 1, 1, 1]),
        (["--split-max-tensors", 7, "--no-tensor-first-split"], [0, 7]),
    ],
)
def test_split_and_merge(
    small: Path,
    tmp_path: Path,
    how: list[object],
    sizes: list[int],
    capsys: pytest.CaptureFixture[str],
) -> None:
    n = len(sizes)
    assert run("split", small, tmp_path / "parts" / "m", *how, "--dry-run") == 0
    assert capsys.readouterr().out.count("\n") == n
    assert not (tmp_path / "parts").exists()
    assert run("split", small, tmp_path / "parts" / "m", *how) == 0
    parts = sorted((tmp_path / "parts").iterdir())
    assert [p.name for p in parts] == [f"m-{i + 1:05d}-of-{n:05d}.gguf" for i in range(n)]
    with GGUFFile.open(parts[-1]) as file:
        assert [*file.tensors] == [f"t{i}" for i in range(7)]
    assert run("diff", small, parts[0]) == 0
    assert run("merge", parts[1], tmp_path / "whole.gguf") == 0
    assert (tmp_path / "whole.gguf").read_bytes() == small.read_bytes()
    capsys.readouterr()
    assert "already split" in refused(capsys, "split", parts[0], tmp_path / "again")


def test_diff(small: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    changed = [Tensor("t2", (32, 4), 8, bytes(136)), Tensor("t3", (64,), 8, bytes(68))]
    tensors = [*TENSORS[:2], *changed]
    other = write(tmp_path, gguf([*KEYS[:1], kv("a.u8", "u8", 1), *KEYS[2:]], tensors), "o.gguf")
    assert run("diff", small, other) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[:3] == [
        "a.u8: u8 250 | u8 1",
        "t2: 136 of 136 bytes differ",
        "t3: q8_0 [32, 5] | q8_0 [64]",
    ]
    assert lines[3] == "t4: q8_0 [32, 6] | -"
    assert run("diff", small, other, "--no-bytes") == 1
    assert "bytes differ" not in capsys.readouterr().out
    assert run("diff", small, small) == 0


def test_sizes() -> None:
    assert [parse_size(t) for t in ("12", "3k", "2M", "1G")] == [12, 3000, 2_000_000, 10**9]
    with pytest.raises(ValueError, match="is not a size"):
        parse_size("1T")


def test_what_is_written_is_read_again() -> None:
    assert encode("arr[str]", ["ä"]) == array_of("str", ["ä"])
    assert encode("f64", 0.1) == kv("k", "f64", 0.1)[9:]


def array_of(kind: str, items: list[str]) -> bytes:
    return kv("k", "arr", array(kind, items))[9:]
