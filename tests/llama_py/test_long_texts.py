"""Texts so long that other work must go on beside them, and that may be stopped."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from llama_py.sampler.breakers import find_breakers
from llama_py.support.stopping import EVERY, check_stopped, iterate_checked, use_stop_check
from llama_py.tokenizer import Tokenizer, characters, nfc
from llama_py.tokenizer.models import _base
from llama_py.tokenizer.pre import PRE_TOKENIZERS
from tests.support import vocab_data
from tests.support.text_vocab import bpe, spm
from tests.support.vocabularies import VOCABULARIES, recorded, texts_of


def ways() -> Iterator[str]:
    """Yield one vocabulary for each way to convert and split texts; many share theirs."""
    seen = set()
    for name in VOCABULARIES:
        if name in vocab_data.NAMES:
            continue
        model, _, named = name.partition(", ")
        pre = PRE_TOKENIZERS.get(named) if model == "gpt2" else None
        flags = pre and (pre.ignore_merges, pre.always, pre.as_bytes, pre.escape, pre.newlines)
        way = (pre.cuts, flags) if pre else name
        if way not in seen:
            yield name
        seen.add(way)


NAMES = [*ways()]


class Left(Exception):
    """What the caller stops the work with."""


def counter(most: int) -> Any:
    """A check that stops the work at its last of `most` calls."""
    n = iter(range(most - 1))

    def check() -> None:
        if next(n, None) is None:
            raise Left

    return check


def test_checks_are_of_the_block_only() -> None:
    check_stopped()
    with pytest.raises(Left), use_stop_check(counter(1)):
        check_stopped()
    check_stopped()
    with use_stop_check(counter(3)):
        assert list(iterate_checked(range(2 * EVERY))) == list(range(2 * EVERY))
    seen: list[int] = []
    with pytest.raises(Left), use_stop_check(counter(2)):
        seen.extend(iterate_checked(range(2 * EVERY)))


@pytest.mark.parametrize("name", NAMES)
def test_every_tokenizer_may_be_stopped(name: str) -> None:
    tokenizer = Tokenizer.from_metadata(VOCABULARIES[name]())
    text = "the king,\n" * 2 * EVERY
    tokenizer.tokenize(text)
    most = 2 if "superbpe" in name else 4  # which has one word
    with pytest.raises(Left), use_stop_check(counter(most)):
        tokenizer.tokenize(text)


@pytest.mark.parametrize("tokenizer", [spm({"aa": -1.0, "aaaa": -2.0}), bpe("a a", "aa aa")])
def test_one_long_word_may_be_stopped(tokenizer: Tokenizer) -> None:
    vars(tokenizer._model)["_library"] = None  # which takes a word as a whole
    with pytest.raises(Left), use_stop_check(counter(4)):
        tokenizer.tokenize("a" * 4 * EVERY)


def test_breakers_may_be_stopped() -> None:
    tokenizer = spm({f"w{i}": 0.0 for i in range(2 * EVERY)})
    with pytest.raises(Left), use_stop_check(counter(3)):
        find_breakers(["a"], tokenizer)


@pytest.mark.parametrize("name", NAMES)
def test_pieces_of_a_text_are_converted_alike(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(characters, "PIECE", 3)
    monkeypatch.setattr(nfc, "PIECE", 3)
    tokenizer, ids = Tokenizer.from_metadata(VOCABULARIES[name]()), recorded()[name]
    for text, expected in list(zip(texts_of(name), ids, strict=True))[::5]:
        assert tokenizer.tokenize(text) == expected, repr(text)


def test_long_words_leave_the_interpreter_to_others(monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer = bpe("a a", "aa aa", "b c")
    model: Any = tokenizer._model
    library, called = model._library, []

    def noted(name: str, *args: Any, **how: Any) -> Any:
        called.append(name)
        return getattr(library, name)(*args, **how)

    ways = {name: partial(noted, name) for name in ("encode", "encode_batch_fast")}
    monkeypatch.setitem(vars(model), "_library", SimpleNamespace(**ways))
    word = "aaaaabc" * 60
    short, n = word[: _base.LONG - 1], len(word)
    for text in (word, short, word):
        expected = library.encode(text, add_special_tokens=False).ids
        assert tokenizer.tokenize(text) == expected and len(expected) < n
    assert called == ["encode_batch_fast", "encode", "encode_batch_fast"]  # which are not kept
