"""Tokenizers beside the real llama.cpp's, in the same process.

LLAMA_CPP_MODELS names a folder of GGUF files (llama.cpp's own `models`) to compare on as well.
"""

from __future__ import annotations

import os
import random
from itertools import product
from pathlib import Path
from typing import Any

import pytest

import llama_py
from llama_py.tokenizer import Tokenizer
from tests.support.gguf_writer import write
from tests.support.llama_cpp_vocab import LlamaCpp
from tests.support.text_vocab import vocab_gguf
from tests.support.vocabularies import NEWEST, VOCABULARIES, recorded, texts

llama_cpp = pytest.importorskip("llama_cpp", reason="needs llama-cpp-python: '.[parity]'")
pytestmark = pytest.mark.parity

FOLDER = os.environ.get("LLAMA_CPP_MODELS")
FILES = sorted(Path(FOLDER).glob("*.gguf")) if FOLDER else []
SPECIAL = (
    *("bos", "eos", "eot", "sep", "pad", "mask"),
    *("fim_pre", "fim_suf", "fim_mid", "fim_pad", "fim_rep", "fim_sep"),
)
NAMES = [name for name in VOCABULARIES if name not in NEWEST]
# A token of characters that stand for no bytes is [UNK_BYTE_0x...] in llama.cpp's texts, and itself
# in ours; this kind has many.
READ = [name for name in NAMES if name != "whitespace, whitespace"]
# Models that see bytes, not characters:
BYTES = ("nomic-bert-moe", "test", "t5, spaced", "t5, unprefixed", "rwkv")


def both(meta: dict[str, Any], folder: Path) -> tuple[Tokenizer, LlamaCpp]:
    path = write(folder, vocab_gguf(meta))
    return llama_py.load_tokenizer(path), LlamaCpp(llama_cpp, path)


def assert_same(ours: Tokenizer, theirs: LlamaCpp, many: list[str]) -> None:
    for text in many:
        for how in ((False, False), (True, True)):
            assert ours.tokenize(text, *how) == theirs.tokenize(text, *how), repr(text)


@pytest.mark.parametrize("name", NAMES)
def test_ids(name: str, tmp_path: Path) -> None:
    ours, theirs = both(VOCABULARIES[name](), tmp_path)
    assert [theirs.tokenize(text, True, True) for text in texts()] == recorded()[name]
    assert_same(ours, theirs, texts(n=500, seed=2))


@pytest.mark.parametrize("name", BYTES)
def test_ids_of_bytes(name: str, tmp_path: Path) -> None:
    ours, theirs = both(VOCABULARIES[name](), tmp_path)
    rng = random.Random(4)
    for text in texts():
        data = bytearray(text.encode())
        for _ in range(len(data) // 4):
            data[rng.randrange(len(data))] = rng.randrange(256)
        found = ours.tokenize(data.decode("utf-8", "surrogateescape"))
        assert found == theirs.tokenize(bytes(data), True, True), bytes(data)


@pytest.mark.parametrize("name", READ)
def test_tokens(name: str, tmp_path: Path) -> None:
    ours, theirs = both(VOCABULARIES[name](), tmp_path)
    for i in range(ours.n_vocab):
        if not (piece := theirs.piece(i, True)).startswith(b"[UNK_BYTE_0x"):
            assert ours.token_bytes(i) == piece
            assert ours.token_to_piece(i) == theirs.piece(i, False)
        assert ours.is_eog(i) == theirs.is_eog(i)
    for special in SPECIAL:
        assert ours.special_ids.get(special) == theirs.special_id(special), special
    for flag in ("add_bos", "add_eos", "add_sep"):
        expected = getattr(theirs.lib, f"llama_vocab_get_{flag}")(theirs.vocab)
        assert getattr(ours.vocab, flag) == expected, flag


@pytest.mark.parametrize("name", READ)
def test_texts_of_ids(name: str, tmp_path: Path) -> None:
    ours, theirs = both(VOCABULARIES[name](), tmp_path)
    rng = random.Random(7)
    many = [theirs.tokenize(text, True, True) for text in texts()]
    many += [rng.choices(range(ours.n_vocab), k=20) for _ in range(100)]
    ends = (False, True) if ours.vocab.first or ours.vocab.last else (False,)
    for ids in many:
        for remove, special in product(ends, (False, True)):
            expected = theirs.detokenize(ids, remove, special)
            removed = remove and ids[:1] == [ours.bos]
            silent = removed or (ids and not theirs.piece(ids[0], special))
            if ours.vocab.add_space_prefix and silent:
                expected = expected.removeprefix(b" ")  # there, a BOS keeps it
            found = ours.detokenize(ids, special, remove_special=remove, clean_spaces=True)
            same = found == expected.decode("utf-8", "replace")
            assert same or b"[UNK_BYTE_0x" in expected, ids


@pytest.mark.skipif(not FILES, reason="LLAMA_CPP_MODELS is not set")
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_ids_of_files(path: Path) -> None:
    """Also the texts and ids that come with some of the files."""
    ours, theirs = llama_py.load_tokenizer(path), LlamaCpp(llama_cpp, path)
    inputs, outputs = (path.with_name(f"{path.name}.{end}") for end in ("inp", "out"))
    if inputs.exists():
        many = inputs.read_bytes().decode().split("\n__ggml_vocab_test__\n")
        for text, line in zip(many, outputs.read_text().splitlines(), strict=False):
            assert ours.tokenize(text, False, False) == [int(i) for i in line.split()], repr(text)
    assert_same(ours, theirs, texts(n=500, seed=3))
