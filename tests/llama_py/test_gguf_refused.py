"""Files that are not GGUF, or that lie: one GGUFError, soon and without using memory."""

from __future__ import annotations

import os
import sys
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from llama_py.gguf.file import GGUFFile
from tests.support.gguf_writer import (
    KINDS,
    Tensor,
    array,
    gguf,
    kv,
    refusal,
    string,
    u32,
    u64,
    write,
)

ARCH = kv("general.architecture", "str", "llama")


def message_only(value: object) -> str:
    """A readable test id: the expected message, not the bytes of the file."""
    return value if isinstance(value, str) else ""


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"", "is empty"),
        (b"GGU", "not a GGUF file"),
        (b"\x00" * 100, "not a GGUF file"),
        (b"tjgg" + u32(3) + bytes(50), "old GGML model"),
        (b"lmgg" + bytes(50), "old GGML model"),
        (b"PK\x03\x04" + bytes(50), "zip archive"),
        (b"\x80\x02}q\x00." + bytes(50), "pickle"),
        (u64(90) + b'{"__metadata__":{}}' + bytes(90), "safetensors"),
        (u64(0x80) + b'{"__metadata__":{}}' + bytes(128), "safetensors"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "git lfs pull"),
        (b"<!DOCTYPE html>", "web page"),
        (b"\x1f\x8b\x08" + bytes(50), "gzip"),
        (b"GGUF" + (3).to_bytes(4, "big") + bytes(16), "big-endian"),
        (gguf([ARCH], version=1), "version 1 is not supported"),
        (gguf([ARCH], version=0), "unknown GGUF version 0"),
        (gguf([ARCH], version=4), "unknown GGUF version 4"),
        (b"GGUF" + u32(3), "the number of tensors at byte 8"),
    ],
    ids=message_only,
)
def test_not_a_readable_gguf(content: bytes, expected: str, tmp_path: Path) -> None:
    assert expected in refusal(write(tmp_path, content))


def nested(depth: int) -> bytes:
    items = array("u8", [1])
    for _ in range(depth - 1):
        items = array("arr", [items])
    return kv("k", "arr", items)


def broken_kv(kind: int, rest: bytes) -> bytes:
    return gguf([string("k") + u32(kind) + rest])


HUGE = 2**64 - 1


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (gguf([ARCH], n_kv=HUGE), f"{HUGE} key-values declared"),
        (gguf([ARCH], n_kv=10), "10 key-values declared"),
        (gguf([ARCH], n_tensors=2**63), f"{2**63} tensors declared"),
        (gguf([kv("a", "u8", 1), kv("a", "u8", 2)]), "key 'a' occurs twice"),
        (gguf([kv("", "u8", 1)]), "key 0 at byte 32 is empty"),
        (gguf([kv(b"\xff", "u8", 1)]), "key 0 is not UTF-8"),
        (gguf([kv("k" * 65536, "u8", 1)]), "key 0 at byte 32 has 65536 bytes"),
        (gguf([string("key", n=HUGE)]), f"has {HUGE} bytes"),
        (gguf([kv("two\nlines", "u8", 1)] * 2), r"key 'two\nlines' occurs twice"),
        (broken_kv(13, bytes(20)), "the value of 'k' at byte 37 has unknown type 13"),
        (broken_kv(8, string("x", n=2**40)), "the value of 'k' at byte 45 needs"),
        (broken_kv(9, array("u8", [1], n=HUGE)), f"{HUGE} items in the value of 'k'"),
        (broken_kv(9, array("f64", [1], n=2**61)), f"{2**61} items"),
        (broken_kv(9, array("str", ["a"], n=HUGE)), f"{HUGE} strings in"),
        (broken_kv(9, array("str", [], n=2) + string("a") + u64(HUGE)), "past the end of the file"),
        (broken_kv(9, array("str", [], n=2) + u64(2**62) + u64(1)), "string 1 of 2"),
        (broken_kv(9, array("arr", [], n=HUGE)), f"{HUGE} arrays in"),
        (broken_kv(9, u32(13) + u64(1) + bytes(20)), "unknown type 13"),
        (gguf([nested(5)]), "more than 4 levels"),
        (gguf([nested(5000)]), "more than 4 levels"),
    ],
    ids=message_only,
)
def test_metadata_that_lies(content: bytes, expected: str, tmp_path: Path) -> None:
    path = write(tmp_path, content)
    tracemalloc.start()
    try:
        message = refusal(path)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert expected in message
    assert peak < 1e6


def test_four_levels_of_arrays(tmp_path: Path) -> None:
    with GGUFFile.open(write(tmp_path, gguf([nested(4)]))) as file:
        assert file.metadata["k"][0][0][0].tolist() == [1]


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        ("u32", 0, "must be a power of two, got 0"),
        ("u32", 48, "must be a power of two, got 48"),
        ("i32", -32, "must be a power of two, got -32"),
        ("u64", 2**40, f"must be a power of two, got {2**40}"),
        ("str", "32", "must be a power of two, got a str"),
        ("bool", True, "must be a power of two, got a bool"),
        ("arr", array("u32", [32]), "must be a power of two, got a ndarray"),
    ],
    ids=message_only,
)
def test_alignment_that_makes_no_sense(
    kind: str, value: Any, expected: str, tmp_path: Path
) -> None:
    path = write(tmp_path, gguf([kv("general.alignment", kind, value)], [Tensor("w")]))
    assert f"general.alignment {expected}" in refusal(path)


F32 = bytes(4)


@pytest.mark.parametrize(
    ("tensors", "expected"),
    [
        ([Tensor("w"), Tensor("w")], "tensor 'w' occurs twice"),
        ([Tensor("n" * 64)], "the name of tensor 0 at byte 32 has 64 bytes, more than 63"),
        ([Tensor(b"\xff")], "the name of tensor 0 is not UTF-8"),
        ([Tensor("w", (1,) * 5)], "tensor 'w' has 5 dimensions, more than 4"),
        ([Tensor("w", (1,), n_dims=2**32 - 1)], "4294967295 dimensions"),
        ([Tensor("w", (4, -1))], "has ne [4, -1], which must not be negative"),
        ([Tensor("w", (2**62, 2, 2))], "more elements than 2^63 - 1"),
        ([Tensor("w", (2**62,))], f"ends at byte {2**64 + 64}, but the file has"),
        ([Tensor("w", (33,), 8)], "rows of 33 elements, not a multiple of q8_0's block of 32"),
        ([Tensor("w", (32,), 4)], "tensor 'w' has unknown type 4; known: 0 f32, 1 f16, 2 q4_0"),
        ([Tensor("w", (32,), 2**32 - 1)], "unknown type 4294967295"),
        ([Tensor("w", (1,), offset=3)], "is not a multiple of the alignment 32"),
        (
            [Tensor("w", (1,), offset=32)],
            "leaves a gap after the tensor before it, expected offset 0",
        ),
        ([Tensor("w", (1,), offset=2**64 - 32)], "leaves a gap"),
        ([Tensor("a"), Tensor("w", offset=0)], "overlaps the tensor before it, expected offset 32"),
        ([Tensor("a", offset=32), Tensor("w", offset=32)], "'a' at data offset 32 leaves a gap"),
        ([Tensor("w", (32,), 139)], "rows of 32 elements, not a multiple of iq4_k's block of 256"),
        ([Tensor("w", (64,), 36)], "rows of 64 elements, not a multiple of i2_s's block of 128"),
        ([Tensor("w", (256, 6), 339)], "tensor 'w' has 6 rows, not a multiple of iq4_k_r4's 4"),
        ([Tensor("w", (256, 2), 144)], "the data of tensor 'w' ends at byte 376, but the file has"),
        (
            [Tensor("a", (1024, 4), 142, bytes(1056)), Tensor("w", data=bytes(64))],
            "tensor 'a' has type 142, but not the size of pq2_0: perhaps iq2_tn, a former type",
        ),
        ([Tensor("w", (32,), 396)], "tensor 'w' has unknown type 396"),
        ([Tensor("w", (100,), 0, F32)], "ends at byte 464, but the file has 96"),
    ],
    ids=message_only,
)
def test_tensors_that_lie(tensors: list[Tensor], expected: str, tmp_path: Path) -> None:
    assert expected in refusal(write(tmp_path, gguf([], tensors)))


@pytest.mark.skipif(sys.platform == "win32", reason="files are not sparse by themselves")
@pytest.mark.parametrize(
    ("kind", "expected"), [("str", "strings in"), ("arr", "arrays in"), ("u64", "items in")]
)
def test_huge_sparse_file(kind: str, expected: str, tmp_path: Path) -> None:
    """Counts that are true, in a file of 4 GiB of zeros, may not take time and memory either."""
    path = write(tmp_path, broken_kv(9, u32(KINDS[kind]) + u64(2**26)))
    os.truncate(path, 2**32)
    assert f"{2**26} {expected}" in refusal(path)


@pytest.mark.skipif(sys.platform == "win32", reason="files are not sparse by themselves")
def test_many_inner_arrays(tmp_path: Path) -> None:
    path = write(tmp_path, broken_kv(9, u32(KINDS["arr"]) + u64(2**20)))
    os.truncate(path, 2**26)
    assert "more than 262144 inner arrays" in refusal(path)


def test_paths_that_are_no_files(tmp_path: Path) -> None:
    assert refusal(tmp_path).startswith("is a folder")
    assert "No such file" in refusal(tmp_path / "none.gguf")
    assert "No such file" in refusal(tmp_path / "none" / "none.gguf")
    assert "null" in refusal(tmp_path / "a\0b")
    assert "name too long" in refusal(tmp_path / ("x" * 5000))


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes here")
def test_a_pipe_does_not_block(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert refusal(tmp_path / "pipe").startswith("is not a regular file")


def test_unreadable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path, gguf([ARCH]))

    def forbidden(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "open", forbidden)
    assert refusal(path).startswith("Permission denied; check the path and its permissions")


def test_path_may_be_a_string(tmp_path: Path) -> None:
    with GGUFFile.open(str(write(tmp_path, gguf([ARCH])))) as file:
        assert file.architecture == "llama"
