"""Vocabularies and texts on which tokenizers are compared with llama.cpp's.

`VOCABULARIES` is the name to the metadata of a file, `texts_of` what to tokenize, and
tests/data/vocab/ids.xz what llama.cpp makes of it. To write that anew, with llama-cpp-python, and
with llama.cpp b11739 for the names in `NEWEST`:

    python -m tests.support.vocabularies
    python -m dev.record.newest vocab "gpt2, mmbert" "t5, nfc"
"""

from __future__ import annotations

import json
import lzma
import random
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from llama_py.tokenizer import TokenType
from llama_py.tokenizer.pre import PRE_TOKENIZERS
from tests.support import vocab_data
from tests.support.gguf_writer import write
from tests.support.text_vocab import bpe_meta, characters, vocab_gguf

Meta = dict[str, Any]
RECORD = Path(__file__).parents[1] / "data" / "vocab" / "ids.xz"

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
    *("<dna>", "</dna>", "ACGTAC", "acgtccccccccCCCCN", "ggg", "<oov>", "’s", "'re", " ' ", " ."),
    *("\U00013460", "\u1c89", "\U00010d41", "\U00013439", "\u0cf3", "\u2ffc", "\U0001fae8"),
    *("<s>", "</s>", "<unk>", "[MASK]", "[CLS]", "[SEP]", "<mask>", "<u>", "<ù", "<", "Ġ", "##a"),
)
# Characters with forms that are equal by Unicode; the last four lines are of Unicode 14 to 17.
_FORMS = (
    "e\u0301 é <e\u0301> <é> <s> e a\u0302\u0323 a\u0323\u0302 ậ ạ â \u0301 \u0300\u0316 \u0334 "
    "\u0344 \u0308 \u0340 \u212b Å \u2126 Ω \uf900 \u8c48 \U0002f800 \u4e3d ☃ "
    "\u0915\u093c \u0958 \u09c7\u09be \u09cb \u0f73 \u0f71\u0f72 か\u3099 が \ufb1d \u05d9\u05b4 "
    "\u1100 \u1161 \u11a8 가 각 \u11a7 \U0001d15e \U0001d157\U0001d165 "
    "\u0897 \u1aca \u1ac1 \u1acf \U0001e4ec \U000105d2\u0307 \U000105c9 \U000113c2 "
    "\U000113c5 \U000113c7 \U000113b8 \U000113d0 \U00011384\U000113bb \U00011385 "
    "\U0001611e \U00016121 \U0001611f \U00016126 \U00016129 \U00016122 \U00016127 "
    "\U00016d63 \U00016d67 \U00016d68 \U00016d69 \U00016d6a"
)
FORMS = (" ", "x" + "\u0301\u0316" * 20, *_FORMS.split(" "))


@cache
def texts(n: int = 300, seed: int = 1, pieces: tuple[str, ...] = PIECES) -> list[str]:
    """All pieces by themselves, then n random rows of them."""
    rng = random.Random(seed)
    rows = ["".join(rng.choice(pieces) for _ in range(rng.randint(1, 12))) for _ in range(n)]
    return ["", *pieces, *rows]


def texts_of(name: str) -> list[str]:
    """Texts for a vocabulary."""
    return texts(pieces=FORMS) if name == "t5, nfc" else texts()


def _stored(name: str, n: int = 6000) -> Meta:
    """llama.cpp's vocabulary of a name, cut to the tokens that stand first."""
    meta = vocab_data.vocabulary(name).metadata
    per_token = ("tokens", "token_type", "scores")
    found = {key: meta[key][:n] if key.endswith(per_token) else meta[key] for key in meta}
    return {key: value for key, value in found.items() if not key.endswith("mask_token_id")}


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
    return _changed(_stored("bert-bge"), more, **{"normalizer.lowercase": False})


def _accents() -> Meta:
    more = dict.fromkeys(("é", "▁é", "ï", "ü", "▁ü", "ö", "각", "▁각"), TokenType.NORMAL)
    return _changed(_stored("bert-bge"), more, **{"normalizer.strip_accents": False})


def _spaced() -> Meta:
    """Spaces stay, there is no normaliser, and tokens start as user-defined ones do."""
    more = {"<u>": TokenType.USER_DEFINED, "<é": TokenType.USER_DEFINED, "ﬁx": TokenType.UNUSED}
    return _changed(
        _stored("nomic-bert-moe"),
        more,
        precompiled_charsmap=None,
        remove_extra_whitespaces=False,
        add_bos_token=False,
    )


def _unprefixed() -> Meta:
    more = {"<u>": TokenType.USER_DEFINED, "ﬁé": TokenType.USER_DEFINED, "ſx": TokenType.NORMAL}
    keys = {"add_space_prefix": False, "remove_extra_whitespaces": False, "add_eos_token": False}
    return _changed(_stored("nomic-bert-moe"), more, **keys)


def _forms() -> Meta:
    """A token per character of the forms."""
    tokens = dict.fromkeys(("<pad>", "</s>", "<unk>", "<s>"), TokenType.CONTROL)
    tokens |= dict.fromkeys(sorted({c for piece in FORMS for c in piece.replace(" ", "▁")}), 1)
    tokens |= {"<é>": TokenType.USER_DEFINED, "\u0301\u0316": TokenType.NORMAL}
    types = np.array(list(tokens.values()), "i4")
    meta = {"model": "t5", "tokens": list(tokens), "token_type": types, "normalizer.nfc": True}
    return _named(meta | {"scores": np.zeros(len(tokens), "f4") - 2, "add_space_prefix": True})


def _masked() -> Meta:
    return _changed(pairs("mmbert"), {"<mask>": TokenType.CONTROL})


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


def _plamo() -> Meta:
    """Strings cut anywhere out of the pieces, with scores that tie, and some that do not count."""
    rng, found = random.Random(5), dict.fromkeys(("<unk>", "<s>", "</s>", "<pad>"), 3)
    found |= {f"<0x{b:02X}>": 6 for b in range(256)}
    everything = " ".join(PIECES).replace("\0", "")  # C strings end there
    for _ in range(1500):
        start = rng.randrange(len(everything))
        found.setdefault(everything[start : start + rng.randint(1, 5)], rng.choice((1, 1, 1, 4, 5)))
    scores = [rng.choice((0.0, -1.0, -2.5, -7.00005, -2000.0, float("-inf"))) for _ in found]
    meta = {"model": "plamo2", "tokens": list(found), "token_type": list(found.values())}
    return _named(meta | {"scores": np.array(scores, "f4"), "add_bos_token": True})


def _dna() -> Meta:
    """Six letters are tokens only with the mark; `CCCCCC` is also a word."""
    meta = pairs("qwen2", "hybriddna")
    rng, tokens = random.Random(6), ["<dna>", "</dna>", "CCCCCC", "<oov>"]
    tokens += ["".join(rng.choices("ACGT", k=6)) + "\ue000" for _ in range(2000)]
    tokens += ["CCCCCC\ue000", "AAAAAA\ue000", "\ue000"]
    return _changed(meta, dict.fromkeys(tokens, TokenType.NORMAL))


def _hashes() -> Meta:
    meta = {"model": "test", "tokens": ["<s>", *(f"tok_{i}" for i in range(100))]}
    meta |= {"token_type": [3, *[1] * 100], "bos_token_id": 0, "add_bos_token": True}
    return _named(meta)


def _named(meta: Mapping[str, Any]) -> Meta:
    return {f"tokenizer.ggml.{key}": value for key, value in meta.items()}


def pairs(pre: str | None, model: str = "gpt2") -> Meta:
    """With a merge for any two bytes of some pieces, a cut is hard to miss.

    No merges make the words that are tokens.
    """
    if pre and not PRE_TOKENIZERS[pre].as_bytes:
        return _pairs_of_characters(pre, model)
    found = sorted(set("".join(PLAIN).encode()))
    names = [characters()[b] for b in found]
    merges = [f"{a} {b}" for a in names for b in names]
    random.Random(0).shuffle(merges)
    end = 256 + len(merges)
    special = {"<s>": TokenType.CONTROL, "Hello": TokenType.NORMAL, "345": TokenType.NORMAL}
    ids = {"bos_token_id": end, "eos_token_id": end}
    return bpe_meta(*merges, special=special, pre=pre, model=model, **ids)


def _pairs_of_characters(pre: str, model: str) -> Meta:
    """Of those in the plain pieces; the others are bytes, not all of which are tokens."""
    found = sorted(set("".join(PLAIN)) - set(" \t\xa0\u3000\u2003²½Ï") | {"▁"})
    merges = [f"{a} {b}" for a in found for b in found]
    random.Random(0).shuffle(merges)
    tokens = dict.fromkeys((f"<0x{b:02X}>" for b in range(250)), TokenType.BYTE)
    tokens |= dict.fromkeys(["\n\n\n", "Hello", *found], TokenType.NORMAL)
    tokens |= dict.fromkeys((merge.replace(" ", "") for merge in merges), TokenType.NORMAL)
    end = len(tokens)
    tokens["<s>"] = TokenType.CONTROL
    meta = {"model": model, "pre": pre, "tokens": list(tokens), "merges": merges}
    types = np.array(list(tokens.values()), "i4")
    return _named(meta | {"token_type": types, "bos_token_id": end, "eos_token_id": end})


def _unpaired() -> Meta:
    """Merges of and into what is no token, bytes that have none, and no special tokens named."""
    meta = pairs("gpt-2")
    gone = {"l", "lo", "He", "ä", "½", "Ġ", "W"}
    tokens = [f"<{i}>" if t in gone else t for i, t in enumerate(meta["tokenizer.ggml.tokens"])]
    meta["tokenizer.ggml.merges"] += ["none", "a  b", "H e"]
    return _changed(meta, {}, tokens=tokens, bos_token_id=None, eos_token_id=None)


VOCABULARIES: dict[str, Callable[[], Meta]] = {
    **{name: lambda name=name: vocab_data.vocabulary(name).metadata for name in vocab_data.NAMES},
    "bert, cased": _cased,
    "bert, with accents": _accents,
    "t5, spaced": _spaced,
    "t5, unprefixed": _unprefixed,
    "rwkv": _world,
    "plamo2": _plamo,
    "hybriddna": _dna,
    "test": _hashes,
    "gpt2, unpaired": _unpaired,
    "gpt2, no pre": partial(pairs, None),
    "gemma4": partial(pairs, "gemma4", "gemma4"),
    "whitespace, whitespace": partial(pairs, "whitespace", "whitespace"),
    "whitespace, gpt-2": partial(pairs, "gpt-2", "whitespace"),
    # gpt2 with this one stops llama.cpp at two spaces (GGML_ASSERT in find_bpe_rank).
    **{f"gpt2, {pre}": partial(pairs, pre) for pre in PRE_TOKENIZERS if pre != "whitespace"},
    "gpt2, mmbert": _masked,
    "t5, nfc": _forms,
}
NEWEST = ("gpt2, mmbert", "t5, nfc")


@cache
def recorded() -> dict[str, list[list[int]]]:
    """Vocabulary to the ids of each of its texts, with special tokens."""
    found: dict[str, list[list[int]]] = json.loads(lzma.decompress(RECORD.read_bytes()))
    return found


def record(names: Iterable[str]) -> None:
    """Record ids of vocabularies by the installed llama_cpp."""
    import llama_cpp

    from tests.support.llama_cpp_vocab import LlamaCpp

    ids = dict(recorded())
    with tempfile.TemporaryDirectory() as folder:
        for name in names:
            theirs = LlamaCpp(llama_cpp, write(Path(folder), vocab_gguf(VOCABULARIES[name]())))
            ids[name] = [theirs.tokenize(text, True, True) for text in texts_of(name)]
    text = json.dumps(ids, separators=(",", ":"))
    RECORD.write_bytes(lzma.compress(text.encode(), preset=9 | lzma.PRESET_EXTREME))
    recorded.cache_clear()
    print(f"{RECORD.stat().st_size} {RECORD}")


if __name__ == "__main__":
    record(sys.argv[1:] or [name for name in VOCABULARIES if name not in NEWEST])
