"""GGUF reader: values and tensors, against the `gguf` package and our own writer."""

from __future__ import annotations

import gc
import mmap
import sys
from pathlib import Path
from typing import Any

import gguf as gguf_package
import numpy as np
import pytest

from ggml_py.errors import GGUFError
from ggml_py.types import TYPES
from llama_py.gguf import metadata as gguf_metadata
from llama_py.gguf.file import GGUFFile
from llama_py.gguf.forms import FORMS
from llama_py.gguf.pages import AROUND, release_pages
from tests.support import vocab_data
from tests.support.commands import DEMO, tiny_model
from tests.support.gguf_writer import (
    KINDS,
    SCALARS,
    Tensor,
    array,
    gguf,
    kv,
    string,
    u32,
    u64,
    write,
)
from tests.support.text_vocab import vocab_gguf

ARCH = kv("general.architecture", "str", "llama")

EXTREMES: dict[str, list[Any]] = {
    "bool": [True, False],
    "f32": [0.0, -1.5, float(np.float32(3.4e38)), float("inf")],
    "f64": [0.0, -1.5, 1.7e308, float("-inf")],
} | {
    f"{sign}{bits}": [0, 1, np.iinfo(dtype).min, np.iinfo(dtype).max]
    for bits in (8, 16, 32, 64)
    for sign, dtype in (("u", f"u{bits // 8}"), ("i", f"i{bits // 8}"))
}


def write_with_package(path: Path, kind: str, values: list[Any]) -> None:
    writer = gguf_package.GGUFWriter(path, "llama")
    value_type = gguf_package.GGUFValueType(KINDS[kind])
    for i, value in enumerate(values):
        writer.add_key_value(f"scalar.{i}", value, value_type)
    array_type = gguf_package.GGUFValueType.ARRAY
    writer.add_key_value("array", values, array_type, sub_type=value_type)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()


@pytest.mark.parametrize("kind", SCALARS)
def test_scalars_and_arrays_of_the_gguf_package(kind: str, tmp_path: Path) -> None:
    values = [v if isinstance(v, (bool, float)) else int(v) for v in EXTREMES[kind]]
    write_with_package(tmp_path / "m.gguf", kind, values)
    with GGUFFile.open(tmp_path / "m.gguf") as file:
        read = [file.metadata[f"scalar.{i}"] for i in range(len(values))]
        items = file.metadata["array"]
    assert read == values
    assert [type(v) for v in read] == [type(v) for v in values]
    assert isinstance(items, np.ndarray)
    assert items.dtype == np.dtype(SCALARS[kind][1])
    assert items.tolist() == values
    assert items.flags.aligned and not items.flags.writeable


def test_strings_of_the_gguf_package(tmp_path: Path) -> None:
    texts = ["", "a", "naïve", "日本", "x" * 1000]
    write_with_package(tmp_path / "m.gguf", "str", texts)
    with GGUFFile.open(tmp_path / "m.gguf") as file:
        assert [file.metadata[f"scalar.{i}"] for i in range(len(texts))] == texts
        assert file.metadata["array"] == texts
        assert next(iter(file.metadata)) == "general.architecture"


def test_nested_arrays(tmp_path: Path) -> None:
    inner = [array("u16", [1, 2, 3]), array("u16", []), array("u16", [4])]
    names = array("arr", [array("str", ["a", "b"]), array("str", [])])
    kvs = [kv("n", "arr", array("arr", inner)), kv("s", "arr", names), kv("last", "u8", 7)]
    with GGUFFile.open(write(tmp_path, gguf(kvs))) as file:
        assert [a.tolist() for a in file.metadata["n"]] == [[1, 2, 3], [], [4]]
        assert file.metadata["s"] == [["a", "b"], []]
        assert file.metadata["last"] == 7


def test_strings_that_are_not_utf8_keep_their_bytes(tmp_path: Path) -> None:
    tokens = [b"ok", b"\xff\xfe", b"\xe6\x97", b"\xed\xa0\x80", b"\x00"]
    kvs = [kv("tokens", "arr", array("str", tokens)), kv("name", "str", tokens[1])]
    with GGUFFile.open(write(tmp_path, gguf(kvs))) as file:
        read = file.metadata["tokens"]
        assert [t.encode("utf-8", "surrogateescape") for t in read] == tokens
        assert file.metadata["name"].encode("utf-8", "surrogateescape") == tokens[1]


def test_any_byte_but_zero_is_true(tmp_path: Path) -> None:
    content = string("b") + u32(KINDS["bool"]) + b"\x02"
    items = string("a") + u32(KINDS["arr"]) + u32(KINDS["bool"]) + u64(3) + b"\x00\x01\xff"
    with GGUFFile.open(write(tmp_path, gguf([content, items]))) as file:
        assert file.metadata["b"] is True
        assert file.metadata["a"].tolist() == [False, True, True]


def test_metadata_is_a_mapping(tmp_path: Path) -> None:
    with GGUFFile.open(write(tmp_path, gguf([ARCH, kv("k", "u8", 1)]))) as file:
        assert dict(file.metadata) == {"general.architecture": "llama", "k": 1}
        assert len(file.metadata) == 2 and "k" in file.metadata
        assert file.metadata.get("none") is None


def test_arrays_are_decoded_on_use_and_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path, gguf([ARCH, kv("t", "arr", array("str", ["a", "b"]))]))
    with GGUFFile.open(path) as file, monkeypatch.context() as patch:
        patch.setattr(gguf_metadata, "_decode_strings", lambda *_: pytest.fail("decoded early"))
        assert "t" in GGUFFile.open(path).metadata
        patch.undo()
        assert file.metadata["t"] is file.metadata["t"]


def test_tensor_fields(tmp_path: Path) -> None:
    first, second = bytes(range(24)), bytes(range(68))
    content = gguf([ARCH], [Tensor("a", (3, 2), 0, first), Tensor("b", (32, 1, 2), 8, second)])
    with GGUFFile.open(write(tmp_path, content)) as file:
        a, b = file.tensors.values()
    assert (a.name, a.type.name, a.ne, a.nbytes) == ("a", "f32", (3, 2, 1, 1), 24)
    assert (b.name, b.type.name, b.ne, b.nbytes) == ("b", "q8_0", (32, 1, 2, 1), 68)
    assert b.offset == a.offset + 32 == content.index(second, content.index(first) + 24)
    assert (a.data.dtype, a.data.tobytes(), b.data.tobytes()) == (np.uint8, first, second)


@pytest.mark.parametrize("type_id", [id for id in TYPES if id not in FORMS])
def test_every_type(type_id: int, tmp_path: Path) -> None:
    block, size = TYPES[type_id].block_size, TYPES[type_id].type_size
    tensor = Tensor("w", (2 * block, 3), type_id, bytes(6 * size))
    with GGUFFile.open(write(tmp_path, gguf([ARCH], [tensor]))) as file:
        assert file.tensors["w"].type is TYPES[type_id]
        assert file.tensors["w"].nbytes == 6 * size


def test_no_dimensions_is_one_element(tmp_path: Path) -> None:
    with GGUFFile.open(write(tmp_path, gguf([ARCH], [Tensor("w", ())]))) as file:
        assert file.tensors["w"].ne == (1, 1, 1, 1)


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("alignment", [1, 8, 64, 4096])
def test_versions_and_alignments(version: int, alignment: int, tmp_path: Path) -> None:
    tensors = [Tensor("a", (3,), 24, b"abc"), Tensor("b", (5,), 24, b"defgh")]
    kvs = [kv("general.alignment", "u32", alignment)]
    content = gguf(kvs, tensors, alignment=alignment, version=version)
    with GGUFFile.open(write(tmp_path, content)) as file:
        assert file.version == version
        assert file.tensors["b"].offset % alignment == 0
        assert file.tensors["b"].data.tobytes() == b"defgh"


def test_data_in_another_order_than_the_table(tmp_path: Path) -> None:
    tensors = [Tensor("a", (3,), 24, b"abc", offset=32), Tensor("b", (5,), 24, b"defgh", offset=0)]
    content = gguf([ARCH], tensors)
    with GGUFFile.open(write(tmp_path, content)) as file:
        assert list(file.tensors) == ["a", "b"]
        assert file.tensors["a"].data.tobytes() == content[-32:][:3]
        assert file.tensors["b"].data.tobytes() == content[-64:][:5]


@pytest.mark.parametrize("ne", [(0,), (0, 4), (4, 0)])
def test_tensors_without_elements(ne: tuple[int, ...], tmp_path: Path) -> None:
    empty = [Tensor(name, ne, 24, b"") for name in ("none", "no")]
    tensors = [empty[0], Tensor("a", (3,), 24, b"abc"), empty[1]]
    with GGUFFile.open(write(tmp_path, gguf([ARCH], tensors))) as file:
        assert file.tensors["none"].nbytes == file.tensors["no"].nbytes == 0
        assert file.tensors["none"].ne[: len(ne)] == ne
        assert file.tensors["a"].data.tobytes() == b"abc"


def test_padding_of_the_last_tensor_may_be_missing(tmp_path: Path) -> None:
    content = gguf([ARCH], [Tensor("a", (3,), 24, b"abc")])
    with GGUFFile.open(write(tmp_path, content[:-29])) as file:
        assert file.tensors["a"].data.tobytes() == b"abc"


def test_views_are_read_only_and_outlive_the_file(tmp_path: Path) -> None:
    path = write(tmp_path, gguf([ARCH], [Tensor("w", (4,), 24, b"abcd")]))
    file = GGUFFile.open(path)
    data = file.tensors["w"].data
    file.close()
    file.close()
    assert data.tobytes() == b"abcd"
    with pytest.raises(ValueError, match="read-only"):
        data[0] = 0
    for name in ("metadata", "tensors", "architecture"):
        with pytest.raises(GGUFError, match=r"m\.gguf: file is closed; "):
            getattr(file, name)


@pytest.mark.skipif(sys.platform != "linux", reason="looks at /proc")
def test_map_lives_as_long_as_its_views(tmp_path: Path) -> None:
    def is_mapped() -> bool:
        gc.collect()
        return str(path) in Path("/proc/self/maps").read_text()

    path = write(tmp_path, gguf([ARCH], [Tensor("w", (4,), 24, b"abcd")]))
    with GGUFFile.open(path) as file:
        data = file.tensors["w"].data[1:]
    assert is_mapped()
    del data
    assert not is_mapped()


def resident(path: Path) -> int:
    """KiB of a mapped file that are in this process's memory (Linux)."""
    lines = iter(Path("/proc/self/smaps").read_text().splitlines())
    return sum(
        int(next(line for line in lines if line.startswith("Rss:")).split()[1])
        for line in lines
        if line.endswith(str(path))
    )


def test_memory_of_a_tensor_that_was_let_go(tmp_path: Path) -> None:
    """It is another's; and the bytes are still there."""
    pages = np.arange(1 << 18, dtype=np.uint32).tobytes()
    tensors = [Tensor(name, (1 << 18,), 0, pages) for name in ("a", "b")]
    path = write(tmp_path, gguf([ARCH], tensors))
    with GGUFFile.open(path) as file:
        a, b = file.tensors["a"], file.tensors["b"]
    for tensor in (a, b):
        assert tensor.data.tobytes() == pages
    if sys.platform == "linux":
        assert resident(path) > 2000
    a.let_go()
    if sys.platform == "linux":
        assert resident(path) < 1100  # nothing of a; of b perhaps, where pages are large
    b.let_go()
    if sys.platform == "linux":
        assert resident(path) == 0  # with the rest of the pages at its ends
    assert a.data.tobytes() == b.data.tobytes() == pages


@pytest.mark.skipif(not hasattr(mmap, "MADV_DONTNEED"), reason="pages stay here")
def test_what_came_along_with_a_tensor_is_let_go_of() -> None:
    """What the system reads around it, as far as there is a file."""

    class Mapped:
        asked: tuple[int, int, int] = (0, 0, 0)

        def __len__(self) -> int:
            return 1 << 20

        def madvise(self, *what: int) -> None:
            self.asked = what[0], what[1], what[2]

    page = mmap.PAGESIZE
    for start, end, first, last in (
        (0, 1, 0, 1 + AROUND),
        (300_000, 300_004, (300_000 - AROUND) // page * page, 300_004 + AROUND),
        ((1 << 20) - 8, 1 << 20, ((1 << 20) - 8 - AROUND) // page * page, 1 << 20),
    ):
        mapped: Any = Mapped()
        release_pages(mapped, start, end)
        assert mapped.asked == (mmap.MADV_DONTNEED, first, last - first)


def test_a_vocabulary_is_counted_and_takes_no_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is decoded when it is asked for, and then its bytes in the file are let go of, too."""
    texts = [f"{i:0200}" for i in range(60_000)]  # 12 MiB; a look may bring 2 MiB
    kvs = [ARCH, kv("n", "u32", 1), kv("texts", "arr", array("str", texts))]
    path = write(tmp_path, gguf(kvs))
    with GGUFFile.open(path) as file:
        with monkeypatch.context() as patch:
            patch.setattr(gguf_metadata, "_decode_array", None)
            assert file.metadata.count("texts") == len(texts)
            assert file.metadata.count("n") == file.metadata.count("no such key") == 0
        if sys.platform == "linux":
            assert resident(path) < 5000
        assert file.metadata["texts"] == texts and file.metadata.count("texts") == len(texts)
        if sys.platform == "linux":
            assert resident(path) < 5000


def test_architecture(tmp_path: Path) -> None:
    with GGUFFile.open(write(tmp_path, gguf([ARCH]))) as file:
        assert file.architecture == "llama"
    for kvs in ([], [kv("general.architecture", "u32", 1)]):
        with (
            GGUFFile.open(write(tmp_path, gguf(kvs))) as file,
            pytest.raises(GGUFError, match=r"string general\.architecture is missing"),
        ):
            _ = file.architecture


def plain(value: Any) -> Any:
    return value.tolist() if isinstance(value, np.ndarray) else value


@pytest.mark.parametrize("name", ["demo", "llama-dense", "kimi-linear-moe"])
def test_same_as_the_gguf_package(name: str, tmp_path: Path) -> None:
    path = DEMO if name == "demo" else tiny_model(tmp_path, name)
    theirs = gguf_package.GGUFReader(path)
    ours = GGUFFile.open(path)
    fields = {k: f for k, f in theirs.fields.items() if not k.startswith("GGUF.")}
    assert list(ours.metadata) == list(fields)
    assert {k: plain(v) for k, v in ours.metadata.items()} == {
        k: f.contents() for k, f in fields.items()
    }
    assert list(ours.tensors) == [t.name for t in theirs.tensors]
    for tensor in theirs.tensors:
        info = ours.tensors[tensor.name]
        ne = tuple(int(n) for n in tensor.shape)
        assert (info.type.id, info.ne) == (tensor.tensor_type, ne + (1,) * (4 - len(ne)))
        assert (info.offset, info.nbytes) == (tensor.data_offset, tensor.n_bytes)
        assert np.array_equal(info.data, tensor.data.reshape(-1).view(np.uint8))


@pytest.mark.parametrize("name", vocab_data.NAMES)
def test_vocabularies(name: str, tmp_path: Path) -> None:
    """What was written is read, of every kind of array."""
    metadata = vocab_data.vocabulary(name).metadata
    metadata = {k: v for k, v in metadata.items() if k.startswith("tokenizer.")}
    with GGUFFile.open(write(tmp_path, vocab_gguf(metadata))) as file:
        found = {k: plain(v) for k, v in file.metadata.items() if k.startswith("tokenizer.")}
    assert len(found["tokenizer.ggml.tokens"]) == len(found["tokenizer.ggml.token_type"]) > 30000
    assert found == {k: plain(v) for k, v in metadata.items()}


def test_vocabulary_of_248320_tokens(tmp_path: Path) -> None:
    tokens = [f"tok{i}" for i in range(248_320)]
    merges = [f"t ok{i}" for i in range(247_587)]
    kvs = [
        kv("tokenizer.ggml.tokens", "arr", array("str", tokens)),
        kv("tokenizer.ggml.scores", "arr", array("f32", range(len(tokens)))),
        kv("tokenizer.ggml.token_type", "arr", array("i32", [1] * len(tokens))),
        kv("tokenizer.ggml.merges", "arr", array("str", merges)),
        kv("tokenizer.ggml.eos_token_id", "u32", 248_046),
    ]
    with GGUFFile.open(write(tmp_path, gguf(kvs))) as file:
        assert file.metadata["tokenizer.ggml.eos_token_id"] == 248_046
        assert file.metadata["tokenizer.ggml.tokens"] == tokens
        assert file.metadata["tokenizer.ggml.merges"] == merges
        assert file.metadata["tokenizer.ggml.scores"][-1] == 248_319
        assert file.metadata["tokenizer.ggml.token_type"].sum() == 248_320
