"""Split models: opened from any part, refused when the parts do not fit."""

from __future__ import annotations

import re
from pathlib import Path

import gguf as gguf_package
import numpy as np
import pytest

from ggml_py.errors import GGUFError
from llama_py.gguf.file import GGUFFile
from tests.support.gguf_writer import Tensor, gguf, kv, refusal, write

ARCH = kv("general.architecture", "str", "llama")


def write_split(folder: Path, n_parts: int = 3) -> list[Path]:
    """A model split by the gguf package, one tensor a part."""
    writer = gguf_package.GGUFWriter(folder / "m.gguf", "llama", split_max_tensors=1)
    writer.add_block_count(7)
    for i in range(n_parts):
        writer.add_tensor(f"t{i}", np.full((2, 8), i, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return sorted(folder.glob("m-*.gguf"))


def part(no: int, count: int, n_tensors: int, tensors: list[Tensor]) -> bytes:
    keys = [("split.no", "u16", no), ("split.count", "u16", count)]
    kvs = [kv(*key) for key in [*keys, ("split.tensors.count", "i32", n_tensors)]]
    return gguf([ARCH, *kvs], tensors)


@pytest.mark.parametrize("given", [0, 1, 2])
def test_split_model_from_any_part(given: int, tmp_path: Path) -> None:
    paths = write_split(tmp_path)
    with GGUFFile.open(paths[given]) as file:
        assert file.paths == tuple(paths)
        assert file.path == paths[0]
        assert (file.architecture, file.metadata["llama.block_count"]) == ("llama", 7)
        assert list(file.tensors) == ["t0", "t1", "t2"]
        for i, tensor in enumerate(file.tensors.values()):
            assert tensor.ne == (8, 2, 1, 1)
            assert (tensor.data.view(np.float32) == i).all()


def test_split_parts_missing(tmp_path: Path) -> None:
    paths = write_split(tmp_path)
    paths[1].unlink()
    message = refusal(paths[2])
    assert message.startswith("1 of 3 parts are missing in the same folder")
    assert paths[1].name in message


def test_split_part_renamed(tmp_path: Path) -> None:
    path = write_split(tmp_path)[1].rename(tmp_path / "renamed.gguf")
    assert "'-00002-of-00003.gguf'" in refusal(path)


def test_split_parts_exchanged(tmp_path: Path) -> None:
    paths = write_split(tmp_path)
    paths[2].write_bytes(paths[1].read_bytes())
    with pytest.raises(GGUFError, match=r"m-00003-of-00003.gguf: expected part 3 of 3, .* part 2"):
        GGUFFile.open(paths[0])
    paths[2].write_bytes(gguf([ARCH]))
    with pytest.raises(GGUFError, match="a model in one file"):
        GGUFFile.open(paths[0])


def test_split_part_damaged(tmp_path: Path) -> None:
    paths = write_split(tmp_path)
    paths[2].write_bytes(paths[2].read_bytes()[:50])
    with pytest.raises(GGUFError, match=r"m-00003-of-00003\.gguf: "):
        GGUFFile.open(paths[0])


def test_split_wrong_number_of_tensors(tmp_path: Path) -> None:
    write(tmp_path, part(1, 2, 3, [Tensor("b")]), "m-00002-of-00002.gguf")
    path = write(tmp_path, part(0, 2, 3, [Tensor("a")]), "m-00001-of-00002.gguf")
    assert "the 2 parts have 2 tensors, but split.tensors.count is 3" in refusal(path)


def test_split_same_tensor_in_two_parts(tmp_path: Path) -> None:
    write(tmp_path, part(1, 2, 2, [Tensor("a")]), "m-00002-of-00002.gguf")
    path = write(tmp_path, part(0, 2, 2, [Tensor("a")]), "m-00001-of-00002.gguf")
    with pytest.raises(
        GGUFError, match=r"m-00002-of-00002.gguf: tensor 'a' is also in an earlier part"
    ):
        GGUFFile.open(path)


@pytest.mark.parametrize(
    ("kvs", "expected"),
    [
        ([kv("split.count", "u64", 2**64 - 1)], "split.count must be .*got 18446744073709551615"),
        ([kv("split.count", "str", "2")], "split.count must be .*got a str"),
        ([kv("split.count", "u16", 2)], "split.no must be .*got missing"),
        (
            [kv("split.count", "u16", 2), kv("split.no", "u16", 2)],
            "split.no must be .* from 0 to 1, got 2",
        ),
        ([kv("split.count", "u16", 2), kv("split.no", "i8", -1)], "split.no must be .*got -1"),
        (
            [kv("split.count", "u16", 2), kv("split.no", "u8", 0)],
            "split.tensors.count must be .*got missing",
        ),
    ],
)
def test_split_keys_that_make_no_sense(kvs: list[bytes], expected: str, tmp_path: Path) -> None:
    assert re.search(expected, refusal(write(tmp_path, gguf(kvs), "m-00001-of-00002.gguf")))


@pytest.mark.parametrize("count", [0, 1])
def test_split_in_one_is_not_split(count: int, tmp_path: Path) -> None:
    kvs = [ARCH, kv("split.no", "u16", 0), kv("split.count", "u16", count)]
    with GGUFFile.open(write(tmp_path, gguf(kvs))) as file:
        assert len(file.paths) == 1
