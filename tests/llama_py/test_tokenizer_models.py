"""Tokenizer models, on what llama.cpp made of many texts and on small vocabularies."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import llama_py
from ggml_py.errors import TokenizerError
from llama_py.tokenizer import Tokenizer, TokenType
from tests.support import vocab_data
from tests.support.gguf_writer import gguf, kv, write
from tests.support.text_vocab import bpe, bpe_meta, spm, vocab_gguf
from tests.support.vocabularies import VOCABULARIES, recorded, texts_of

NORMAL, CONTROL, UNKNOWN = TokenType.NORMAL, TokenType.CONTROL, TokenType.UNKNOWN
USER_DEFINED, UNUSED = TokenType.USER_DEFINED, TokenType.UNUSED
SPECIAL = {"<s>": CONTROL, "</s>": CONTROL, "<unk>": UNKNOWN}
IDS = {"bos_token_id": 0, "eos_token_id": 1, "seperator_token_id": 1, "unknown_token_id": 2}
LONG = 1 << 18


Types = Mapping[str, TokenType]


def small(model: str, tokens: dict[str, float], types: Types | None = None, **keys: Any) -> Any:
    """<s>, </s>, <unk>, then tokens with their scores; normal ones, unless `types` has them."""
    all_types = SPECIAL | dict.fromkeys(tokens, NORMAL) | dict(types or {})
    scores = [0.0, 0.0, 0.0, *tokens.values()]
    meta: dict[str, Any] = {"model": model, "tokens": list(all_types), "scores": scores}
    meta |= {"token_type": list(all_types.values())} | IDS | keys
    known = {f"tokenizer.ggml.{k}": v for k, v in meta.items() if v is not None}
    return Tokenizer.from_metadata(known)


def wpm(*tokens: str, **keys: Any) -> Any:
    return small("bert", dict.fromkeys(tokens, 0.0), **keys)


def pieces(tokenizer: Any, text: str) -> list[str]:
    return [tokenizer.vocab.texts[i] for i in tokenizer.tokenize(text, add_special=False)]


@pytest.mark.parametrize("name", [n for n in VOCABULARIES if n not in vocab_data.NAMES])
def test_ids_are_those_of_llama_cpp(name: str) -> None:
    tokenizer, ids = Tokenizer.from_metadata(VOCABULARIES[name]()), recorded()[name]
    texts = texts_of(name)
    assert len(ids) == len(texts) > 300
    for text, expected in zip(texts, ids, strict=True):
        assert tokenizer.tokenize(text) == expected, repr(text)


def test_a_file_with_a_vocabulary_only(tmp_path: Path) -> None:
    special = {"<a>": CONTROL, "<z>": CONTROL, "<|im_end|>": CONTROL}
    path = write(tmp_path, vocab_gguf(bpe_meta("a b", special=special, bos_token_id=257)))
    tokenizer = llama_py.load_tokenizer(path)
    assert isinstance(tokenizer, llama_py.Tokenizer)
    assert tokenizer.tokenize("abc<a>") == [256, 99, 257]
    assert tokenizer.detokenize([256, 99, 257]) == "abc"
    # 11 is what llama.cpp takes for EOS where a file of this kind does not say it.
    assert (tokenizer.bos, tokenizer.eos, tokenizer.eot) == (257, 11, 259)
    assert tokenizer.special_ids == {"bos": 257, "eos": 11, "eot": 259}
    assert repr(tokenizer) == "<Tokenizer gpt2 (gpt-2), 260 tokens>"


def test_a_file_of_an_architecture_that_is_not_known(tmp_path: Path) -> None:
    keys = [("general.architecture", "new"), ("tokenizer.ggml.model", "none")]
    path = write(tmp_path, gguf([kv(key, "str", value) for key, value in keys]))
    assert repr(llama_py.load_tokenizer(str(path))) == "<Tokenizer none, 0 tokens>"


def test_wpm_takes_the_longest_token_or_none() -> None:
    tokenizer = wpm("▁a", "▁ab", "b", "bc", "▁!", "▁你")
    assert pieces(tokenizer, "abb A\u0301b") == ["▁ab", "b", "▁ab"]
    assert pieces(tokenizer, "abc a!bb你") == ["<unk>", "▁a", "▁!", "<unk>", "▁你"]
    assert tokenizer.tokenize("ab") == [0, 4, 1]
    assert tokenizer.tokenize("") == [0, 1]
    assert tokenizer.detokenize(tokenizer.tokenize("a  ab")) == " a ab"
    assert tokenizer.detokenize(tokenizer.tokenize("ab! a")) == " ab! a"
    assert tokenizer.detokenize(tokenizer.tokenize("ab! a"), clean_spaces=False) == " ab ! a"


def test_wpm_keeps_case_and_accents_where_the_file_says_so() -> None:
    tokens = ("▁a", "▁A", "▁á")
    assert pieces(wpm(*tokens), "a A á") == ["▁a", "▁a", "▁a"]
    assert pieces(wpm(*tokens, **{"normalizer.lowercase": False}), "a A á")[:2] == ["▁a", "▁A"]
    keys = {"normalizer.strip_accents": False}
    assert pieces(wpm(*tokens, **keys), "a A á") == ["▁a", "▁a", "▁á"]


def test_wpm_adds_its_ends_whatever_the_file_says() -> None:
    tokenizer = wpm("▁a", add_bos_token=False, add_eos_token=False)
    assert tokenizer.tokenize("a") == [0, 3, 1] and tokenizer.add_bos
    with pytest.raises(TokenizerError, match=r"SEP token, but .*seperator_token_id is missing"):
        wpm("▁a", seperator_token_id=None)


def test_ugm_takes_the_best_sum() -> None:
    scored = {"▁": -1.0, "a": -3.0, "b": -3.0, "ab": -5.0, "▁a": -3.5, "b▁c": -9.0, "c": -1.0}
    tokenizer = small("t5", scored, add_space_prefix=True)
    assert pieces(tokenizer, "ab") == ["▁", "ab"]
    assert pieces(tokenizer, "a") == ["▁a"]
    assert tokenizer.tokenize("ab c") == [3, 6, 3, 9, 1]
    assert tokenizer.detokenize(tokenizer.tokenize("ab c")) == "ab c"
    cheap = small("t5", scored | {"b▁c": -2.0}, add_space_prefix=True)
    assert pieces(cheap, "ab c") == ["▁a", "b▁c"]


def test_ugm_joins_unknown_characters() -> None:
    tokenizer = small("t5", {"a": -1.0, "▁": -1.0})
    assert pieces(tokenizer, "axyaz") == ["a", "<unk>", "a", "<unk>"]
    assert pieces(tokenizer, "\udcff\udcfea") == ["<unk>", "a"]


def test_ugm_prefers_unused_and_user_defined_tokens_as_llama_cpp() -> None:
    scored = {"a": -1.0, "b": -1.0, "ab": -1.5, "<ab>": -99.0}
    tokenizer = small("t5", scored, {"ab": UNUSED, "<ab>": USER_DEFINED})
    assert pieces(tokenizer, "ab<ab>") == ["ab", "<ab>"]


def test_ugm_spaces() -> None:
    scored = {"▁": -1.0, "a": -1.0}
    merged = small("t5", scored, remove_extra_whitespaces=True)
    assert pieces(merged, "  a  a ") == ["▁", "a", "▁", "a"]
    kept = small("t5", scored, add_space_prefix=True)
    assert pieces(kept, " a ") == ["▁", "▁", "a", "▁"]
    assert pieces(kept, "  ") == ["▁", "▁"]
    assert pieces(small("t5", scored), "a ") == ["a", "▁"]


def charsmap(units: dict[int, int], replacements: bytes, size: int = 512) -> np.ndarray:
    table = [units.get(i, 0) for i in range(size)]
    return np.frombuffer(struct.pack(f"<I{size}I", 4 * size, *table) + replacements, "u1")


def leaf(char: str, base: int) -> int:
    return base << 10 | 0x100 | ord(char)


def test_ugm_replaces_the_longest_key_of_the_normaliser() -> None:
    # From the root (base 0) to x, and from there (base 256) to y: keys x and xy.
    x, y = ord("x"), ord("x") ^ 256 ^ ord("y")
    units = {x: leaf("x", 256), x ^ 256: 1 << 31 | 0, y: leaf("y", 64), y ^ 64: 1 << 31 | 2}
    scored = {"a": -1.0, "b": -1.0}
    good = charsmap(units, b"a\0bb\0")
    assert pieces(small("t5", scored, precompiled_charsmap=good), "xxyx") == list("abba")
    for bad, message in (
        (charsmap(units | {x: leaf("x", 4096)}, b"a\0bb\0"), "damaged"),
        (charsmap(units, b"a\0bb"), "damaged"),
        (good[:100], "a table of 2048 bytes, but has 100"),
        (good.astype("i4"), "must be bytes, got int32"),
    ):
        with pytest.raises(TokenizerError, match=message):
            small("t5", scored, precompiled_charsmap=bad).tokenize("xy")


def test_rwkv_takes_the_longest_token_of_bytes() -> None:
    escaped = {r"\xe4": 0, r"\xe4\xbd": 0, r"\xa0": 0, r"\n": 0, r"\n\n": 0, r"\\": 0, "'": 0}
    tokenizer = small("rwkv", dict.fromkeys(escaped, 0.0) | {"[PAD7]": 0.0}, {"[PAD7]": UNUSED})
    assert pieces(tokenizer, "你\n\n\n\\'") == list(
        (r"\xe4\xbd", r"\xa0", r"\n\n", r"\n", r"\\", "'")
    )
    assert tokenizer.tokenize("\n") == [6] and not tokenizer.add_bos
    assert tokenizer.detokenize(tokenizer.tokenize("你\n\\'")) == "你\n\\'"
    assert tokenizer.token_to_piece(10) == b"[PAD7]" and tokenizer.token_to_piece(0) == b""
    assert pieces(tokenizer, "x\xe4") == ["<unk>"] * 3


def test_what_has_no_token_needs_an_unknown_token() -> None:
    message = "has no token, and its replacement tokenizer.ggml.unknown_token_id is missing"
    with pytest.raises(TokenizerError, match=message):
        small("rwkv", {"a": 0.0}, unknown_token_id=None).tokenize("b")


def long_words() -> dict[str, Any]:
    merges = ("a b", "ab ab")
    return {
        "bert": wpm("▁a", "a", "b", "ba"),
        "t5": small("t5", {"a": -1.0, "b": -1.0, "ab": -2.5, "aba": -2.0}),
        "rwkv": small("rwkv", {"a": 0.0, "b": 0.0, "aba": 0.0}),
        "llama": spm({"a": -3.0, "b": -3.0, "ab": -1.0, "abab": -0.5}, add_space_prefix=False),
        "gpt2": bpe(*merges, pre="qwen2"),
    }


@pytest.mark.parametrize("name", long_words())
def test_a_very_long_word(name: str) -> None:
    """The time goes with the length; with its square this would take an hour."""
    tokenizer, word = long_words()[name], "ab" * (LONG // 2)
    ids = tokenizer.tokenize(word, add_special=False)
    assert len(ids) < LONG
    assert tokenizer.detokenize(ids).strip() == word
