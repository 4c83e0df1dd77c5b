"""Vocabularies and texts on which tokenizers are compared with llama.cpp's.

`VOCABULARIES` is the name to the metadata of a file, `texts` what to tokenize, and
tests/data/vocab/ids.json.gz what llama.cpp makes of it. To write the data anew, with the vendored
vocabularies of llama.cpp:

    python -m tests.vocabularies llama.cpp/models
"""

from __future__ import annotations

import gzip
import json
import random
import sys
import tempfile
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from llama_py.gguf_file import GGUFFile
from llama_py.tokenizer import TokenType
from llama_py.tokenizer.pre import PRE_TOKENIZERS
from tests.gguf_writer import write
from tests.text_vocab import bpe_meta, characters, vocab_gguf

Meta = dict[str, Any]
FOLDER = Path(__file__).parent / "data" / "vocab"
RECORD = FOLDER / "ids.json.gz"

# Vendored vocabularies, cut to the tokens that stand first.
CUT = {"bert": ("ggml-vocab-bert-bge.gguf", 6000), "t5": ("ggml-vocab-nomic-bert-moe.gguf", 6000)}

PLAIN = (
    *("the", " The", "Hello", " WORLD", "unaffable", "don't", "I'LL", "'s", "naïve", "Ünïcödé"),
    *(" ", "  ", "   ", " " * 9, "\t", "\n", "\r\n", "\n\n", " \n ", "\xa0", "\u3000", "\u2003"),
    *("0", "12", "345", "6789", "1234567", "²", "Ⅷ", "٣", "½", "3.14", "1,000"),
    *(".", ",", "!", "?", "...", "--", "'", '"', "(", ")", "[", "_", "/", "$", "~", "`", "€", "§"),
    "你好",
)
PIECES = (
    *PLAIN,
    *("世界", "豈", "あゟ", "アヿ", "ｱ", "한국어", "각", "ㄱ", "ไทย", "नमस्ते", "שלום", "مرحبا"),
    *("🙂", "👩\u200d👩\u200d👧", "🇩🇪", "é", "e\u0301", "\u0301", "ﬁ", "ſ", "İ", "ß", "Ａ", "ǆ"),
    *("\0", "\x01", "\x1c", "\x7f", "\x85", "\xad", "\u200b", "\ufeff", "\ufffd", "▁", "\u2028"),
    *("<s>", "</s>", "<unk>", "[MASK]", "[CLS]", "[SEP]", "<mask>", "<u>", "<ù", "<", "Ġ", "##a"),
)


@cache
def texts(n: int = 300, seed: int = 1) -> list[str]:
    """All pieces by themselves, then n random rows of them."""
    rng = random.Random(seed)
    rows = ["".join(rng.choice(PIECES) for _ in range(rng.randint(1, 12))) for _ in range(n)]
    return ["", *PIECES, *rows]


def _stored(name: str) -> Meta:
    """The tokenizer's keys of a file in tests/data/vocab."""
    with tempfile.TemporaryDirectory() as folder:
        content = gzip.decompress((FOLDER / f"{name}.gguf.gz").read_bytes())
        with GGUFFile.open(write(Path(folder), content)) as file:
            return _tokenizer_keys(file.metadata)


def _tokenizer_keys(meta: Mapping[str, Any]) -> Meta:
    return {key: meta[key] for key in meta if key.startswith("tokenizer.")}


def _changed(meta: Meta, more: Mapping[str, TokenType], **keys: Any) -> Meta:
    """With more tokens, unless they are there, and other keys; None takes a key away."""
    prefix = "tokenizer.ggml."
    tokens, types = meta[prefix + "tokens"], list(meta[prefix + "token_type"])
    more = {token: type_ for token, type_ in more.items() if token not in tokens}
    new = {"tokens": tokens + list(more), "token_type": np.array([*types, *more.values()], "i4")}
    if prefix + "scores" in meta:
        scores = [*meta[prefix + "scores"], *([-3.0] * len(more))]
        new["scores"] = np.array(scores, "f4")
    found = meta | {prefix + key: value for key, value in (new | keys).items()}
    return {key: value for key, value in found.items() if value is not None}


def _cased() -> Meta:
    letters = (f"{space}{letter}" for letter in "TheWORLDÜÏİ" for space in ("", "▁"))
    more = dict.fromkeys(letters, TokenType.NORMAL)
    return _changed(_stored("bert"), more, **{"normalizer.lowercase": False})


def _accents() -> Meta:
    more = dict.fromkeys(("é", "▁é", "ï", "ü", "▁ü", "ö", "각", "▁각"), TokenType.NORMAL)
    return _changed(_stored("bert"), more, **{"normalizer.strip_accents": False})


def _spaced() -> Meta:
    """Spaces stay, there is no normaliser, and tokens start as user-defined ones do."""
    more = {"<u>": TokenType.USER_DEFINED, "<é": TokenType.USER_DEFINED, "ﬁx": TokenType.UNUSED}
    return _changed(
        _stored("t5"), more, precompiled_charsmap=None, remove_extra_whitespaces=False,
        add_bos_token=False,
    )  # fmt: skip


def _unprefixed() -> Meta:
    more = {"<u>": TokenType.USER_DEFINED, "ﬁé": TokenType.USER_DEFINED, "ſx": TokenType.NORMAL}
    keys = {"add_space_prefix": False, "remove_extra_whitespaces": False, "add_eos_token": False}
    return _changed(_stored("t5"), more, **keys)


def _world() -> Meta:
    """All bytes, and byte strings cut anywhere out of the pieces."""
    rng, tokens = random.Random(3), {bytes([b]): None for b in range(256)}
    everything = " ".join(PIECES).encode()
    for _ in range(1500):
        start = rng.randrange(len(everything))
        tokens[everything[start : start + rng.randint(2, 7)]] = None
    escaped = ["<s>", *(repr(token)[2:-1] for token in tokens), "[PAD1]"]
    types = [TokenType.CONTROL, *[TokenType.NORMAL] * len(tokens), TokenType.UNUSED]
    meta = {"model": "rwkv", "tokens": escaped, "token_type": types}
    meta |= {"bos_token_id": 0, "eos_token_id": 0, "add_bos_token": True}
    return {f"tokenizer.ggml.{key}": value for key, value in meta.items()}


def pairs(pre: str) -> Meta:
    """With a merge for any two bytes of some pieces, a cut is hard to miss.

    No merges make the words that are tokens.
    """
    found = sorted(set("".join(PLAIN).encode()))
    names = [characters()[b] for b in found]
    merges = [f"{a} {b}" for a in names for b in names]
    random.Random(0).shuffle(merges)
    end = 256 + len(merges)
    special = {"<s>": TokenType.CONTROL, "Hello": TokenType.NORMAL, "345": TokenType.NORMAL}
    return bpe_meta(*merges, special=special, pre=pre, bos_token_id=end, eos_token_id=end)


# One name of each pre-tokenizer.
WAYS = {pre: name for name, pre in reversed(PRE_TOKENIZERS.items())}.values()

VOCABULARIES: dict[str, Callable[[], Meta]] = {
    "bert": lambda: _stored("bert"),
    "bert, cased": _cased,
    "bert, with accents": _accents,
    "t5": lambda: _stored("t5"),
    "t5, spaced": _spaced,
    "t5, unprefixed": _unprefixed,
    "rwkv": _world,
    **{f"gpt2, {pre}": lambda pre=pre: pairs(pre) for pre in WAYS},
}


def recorded() -> dict[str, list[list[int]]]:
    """Vocabulary to the ids of each of `texts()`, with special tokens."""
    found: dict[str, list[list[int]]] = json.loads(gzip.decompress(RECORD.read_bytes()))
    return found


def _write(path: Path, content: bytes) -> None:
    path.write_bytes(gzip.compress(content, mtime=0))
    print(f"{path.stat().st_size:8} {path}")


def _cut(meta: Meta, n: int) -> Meta:
    per_token = ("tokens", "token_type", "scores")
    found = {key: meta[key][:n] if key.endswith(per_token) else meta[key] for key in meta}
    return {key: value for key, value in found.items() if not key.endswith("mask_token_id")}


def main(models: Path) -> None:
    import llama_cpp

    from tests.llama_cpp_vocab import LlamaCpp

    for name, (file, n) in CUT.items():
        with GGUFFile.open(models / file) as whole:
            content = vocab_gguf(_cut(_tokenizer_keys(whole.metadata), n))
        _write(FOLDER / f"{name}.gguf.gz", content)
    ids = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, meta in VOCABULARIES.items():
            theirs = LlamaCpp(llama_cpp, write(Path(folder), vocab_gguf(meta())))
            ids[name] = [theirs.tokenize(text, True, True) for text in texts()]
    _write(RECORD, json.dumps(ids, separators=(",", ":")).encode())


if __name__ == "__main__":
    main(Path(sys.argv[1]))
