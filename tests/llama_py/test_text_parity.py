"""Tokenizer and sampler against the real llama.cpp, through llama-cpp-python."""

from __future__ import annotations

import ctypes
import random
import unicodedata
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gguf_writer import array, gguf, kv, write
from llama_py.gguf_file import GGUFFile
from llama_py.sampler import Sampler, SamplingParams
from llama_py.tokenizer import Tokenizer, TokenType
from llama_py.tokenizer.pre import PRE_TOKENIZERS
from text_vocab import bpe_meta, characters

pytestmark = pytest.mark.parity

SHARED = Path(__file__).resolve().parents[3] / "shared"
FILES = [*sorted((SHARED / "vocab").glob("*.gguf")), *sorted((SHARED / "demo").glob("demo.gguf"))]
NEEDS_FILES = pytest.mark.skipif(not FILES, reason=f"no vocabulary files in {SHARED}")

ALPHABETS = (
    "abcdefghijklmnopqrstuvwxyz  ",
    "".join(map(chr, range(0x20, 0x7F))),
    "'’sStTrRdDmMlLvVeEſK ",
    "0123456789²½Ⅷ٣九",
    " \t\n\r\x0b\x0c\x85\xa0\u2003\u3000\u200b",
    "".join(map(chr, range(0xA1, 0x250))),
    "你好世界豈あゟアヿ가힣ㄱक़नाя\u0301\u200d🙂👩",
)


def random_texts(n: int) -> Iterator[str]:
    rng = random.Random(1)
    for _ in range(n):
        few = rng.sample(ALPHABETS, 3)
        yield "".join(rng.choice(rng.choice(few)) for _ in range(rng.randint(0, 50)))
    for _ in range(n):
        points = [chr(rng.randrange(1, 0x110000)) for _ in range(30)]
        # Newer code points are in one Unicode table and not in the other.
        yield "".join(c for c in points if unicodedata.category(c) not in ("Cn", "Cs"))


@pytest.fixture(scope="module")
def llama_cpp() -> Any:
    module = pytest.importorskip("llama_cpp")
    module.llama_backend_init()
    return module


LlamaTokenize = Callable[[str, bool, bool], list[int]]


def open_in_llama_cpp(llama_cpp: Any, path: Path) -> LlamaTokenize:
    params = llama_cpp.llama_model_default_params()
    params.vocab_only = True
    vocab = llama_cpp.llama_model_get_vocab(
        llama_cpp.llama_model_load_from_file(str(path).encode(), params)
    )

    def tokenize(text: str, add_special: bool, parse_special: bool) -> list[int]:
        data = text.encode()
        buffer = (ctypes.c_int32 * (2 * len(data) + 16))()
        n = llama_cpp.llama_tokenize(
            vocab, data, len(data), buffer, len(buffer), add_special, parse_special
        )
        return list(buffer[:n])

    return tokenize


def assert_same_as_llama_cpp(llama_cpp: Any, path: Path, n_texts: int) -> None:
    ours = Tokenizer.from_metadata(GGUFFile.open(path).metadata)
    theirs = open_in_llama_cpp(llama_cpp, path)
    specials = [t for t, type_ in zip(ours.vocab.texts, ours.types, strict=True) if type_ == CONTROL]
    for text in random_texts(n_texts):
        text += random.Random(text).choice([*specials[:50], ""]) + " x"
        for how in ((False, False), (True, True)):
            assert ours.tokenize(text, *how) == theirs(text, *how), repr(text)


@pytest.mark.parity
@NEEDS_FILES
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_same_ids_as_llama_cpp(llama_cpp: Any, path: Path) -> None:
    assert_same_as_llama_cpp(llama_cpp, path, n_texts=300)


@pytest.mark.parity
@pytest.mark.parametrize("pre", CUTS)
def test_same_cuts_as_llama_cpp(llama_cpp: Any, pre: str, tmp_path: Path) -> None:
    """With a merge for any two bytes, a cut is hard to miss."""
    gguf = pytest.importorskip("gguf")
    pairs = [f"{a} {b}" for a in characters() for b in characters()]
    random.Random(0).shuffle(pairs)
    meta = bpe_meta(*pairs)
    writer = gguf.GGUFWriter(tmp_path / "vocab.gguf", "llama")
    for key in ("context_length", "embedding_length", "block_count", "attention.head_count"):
        writer.add_uint32(f"llama.{key}", 1)
    writer.add_float32("llama.attention.layer_norm_rms_epsilon", 1e-5)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_token_list(meta["tokenizer.ggml.tokens"])
    writer.add_token_merges(pairs)
    writer.add_bos_token_id(0)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    assert_same_as_llama_cpp(llama_cpp, tmp_path / "vocab.gguf", n_texts=300)
