"""Tokenizers beside the real llama.cpp's, in the same process.

LLAMA_CPP_MODELS names a folder of GGUF files (llama.cpp's own `models`) to compare on as well.
"""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Any

import pytest

import llama_py
from ggml_py.errors import TokenizerError
from llama_py.tokenizer import Tokenizer
from llama_py.tokenizer.pre import PRE_TOKENIZERS
from tests.gguf_writer import write
from tests.llama_cpp_vocab import LlamaCpp
from tests.text_vocab import vocab_gguf
from tests.vocabularies import VOCABULARIES, pairs, recorded, texts

llama_cpp = pytest.importorskip("llama_cpp", reason="needs llama-cpp-python: '.[parity]'")
pytestmark = pytest.mark.parity

FOLDER = os.environ.get("LLAMA_CPP_MODELS")
FILES = sorted(Path(FOLDER).glob("*.gguf")) if FOLDER else []
BYTES = ("t5", "t5, spaced", "t5, unprefixed", "rwkv")  # models that see bytes, not characters


def both(meta: dict[str, Any], folder: Path) -> tuple[Tokenizer, LlamaCpp]:
    path = write(folder, vocab_gguf(meta))
    return llama_py.load_tokenizer(path), LlamaCpp(llama_cpp, path)


def assert_same(ours: Tokenizer, theirs: LlamaCpp, many: list[str]) -> None:
    for text in many:
        for how in ((False, False), (True, True)):
            assert ours.tokenize(text, *how) == theirs.tokenize(text, *how), repr(text)


@pytest.mark.parametrize("name", VOCABULARIES)
def test_ids(name: str, tmp_path: Path) -> None:
    ours, theirs = both(VOCABULARIES[name](), tmp_path)
    assert [theirs.tokenize(text, True, True) for text in texts()] == recorded()[name]
    assert_same(ours, theirs, texts(n=300, seed=2))


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


@pytest.mark.parametrize("name", [name for name in VOCABULARIES if "gpt2" not in name])
def test_tokens(name: str, tmp_path: Path) -> None:
    ours, theirs = both(VOCABULARIES[name](), tmp_path)
    for i in range(ours.n_vocab):
        assert ours.token_to_piece(i) == theirs.piece(i, False)
        assert ours.token_bytes(i) == theirs.piece(i, True)
        assert ours.is_eog(i) == theirs.is_eog(i)
    for special in ("bos", "eos", "eot", "sep", "pad", "mask"):
        assert ours.special_ids.get(special) == theirs.special_id(special), special


@pytest.mark.parametrize("pre", PRE_TOKENIZERS)
def test_every_name_of_a_pre_tokenizer(pre: str, tmp_path: Path) -> None:
    assert_same(*both(pairs(pre), tmp_path), texts()[:120])


@pytest.mark.skipif(not FILES, reason="LLAMA_CPP_MODELS is not set")
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_ids_of_files(path: Path) -> None:
    """Also the texts and ids that come with some of the files."""
    try:
        ours = llama_py.load_tokenizer(path)
    except TokenizerError as error:
        pytest.skip(str(error))
    theirs = LlamaCpp(llama_cpp, path)
    inputs, outputs = (path.with_name(f"{path.name}.{end}") for end in ("inp", "out"))
    if inputs.exists():
        *many, _ = inputs.read_bytes().decode().split("\n__ggml_vocab_test__\n")
        for text, line in zip(many, outputs.read_text().splitlines(), strict=True):
            assert ours.tokenize(text, False, False) == [int(i) for i in line.split()], repr(text)
    assert_same(ours, theirs, texts(n=300, seed=3))
