"""WordPiece (`tokenizer.ggml.model` = bert): splits words into the longest tokens, left to right.

Like llama-vocab.cpp:llm_tokenizer_wpm_session. In a GGUF file the token that starts a word starts
with U+2581, and a token inside a word lacks its `##`.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping
from functools import cached_property, lru_cache
from typing import Any

from llama_py.support.stopping import EVERY, check_stopped, iterate_checked
from llama_py.tokenizer.characters import by_pieces, category, is_space, lower
from llama_py.tokenizer.models._base import LONG, SPACE, TextModel
from llama_py.tokenizer.models._trie import Trie, longest_match, trie
from llama_py.tokenizer.vocab import Defaults, flag, read_vocab

_DEFAULTS = Defaults(
    add_bos=True,
    add_sep=True,
    clean_spaces=True,
    adds_spaces=True,
    first=("bos",),
    last=("sep",),
    special_ids={"bos": 101, "unk": 100, "sep": 102, "pad": 0, "mask": 103},
)

# Each of these characters is a word. 2B920 should be 2B820; the original has the same error.
_CHINESE = (
    ("\u4e00", "\u9fff"),
    ("\u3400", "\u4dbf"),
    ("\U00020000", "\U0002a6df"),
    ("\U0002a700", "\U0002b81f"),
    ("\U0002b920", "\U0002ceaf"),
    ("\uf900", "\ufaff"),
    ("\U0002f800", "\U0002fa1f"),
)


class WordPiece(TextModel):
    """A word that cannot be cut into tokens is one unknown token. White space is lost."""

    names = ("bert",)

    def __init__(self, meta: Mapping[str, Any]) -> None:
        self.vocab = read_vocab(meta, _DEFAULTS)
        lowercase = flag(meta, "normalizer.lowercase", True)
        strip_accents = flag(meta, "normalizer.strip_accents", lowercase)
        self._characters = _Characters(lowercase, strip_accents)
        self._ids_of_word = lru_cache(maxsize=1 << 16)(self._encode_word)

    def encode(self, text: str) -> list[int]:
        """Encode a text; bytes that are not UTF-8 are dropped."""
        words = by_pieces(lambda part: part.translate(self._characters), text).split(" ")
        known, made = self._ids_of_word, self._encode_word
        return [
            id
            for word in iterate_checked(words)
            if word
            for id in (known(word) if len(word) < LONG else made(word))
        ]

    @cached_property
    def _trie(self) -> Trie:
        return trie(self.vocab.ids.items())

    def _encode_word(self, word: str) -> list[int]:
        ids: list[int] = []
        word, at = SPACE + word, 0
        while at < len(word):
            if not len(ids) % EVERY:
                check_stopped()
            found = longest_match(self._trie, word, at)
            if found is None:
                return [self.vocab.unk]
            at, id = found
            ids.append(id)
        return ids


class _Characters(dict[int, str]):
    """Table for `str.translate`: replaces characters; spaces mark splits between words."""

    def __init__(self, lowercase: bool, strip_accents: bool) -> None:
        super().__init__()
        self._lowercase, self._strip_accents = lowercase, strip_accents

    def __missing__(self, code: int) -> str:
        self[code] = found = self._normalize_char(chr(code))
        return found

    def _normalize_char(self, char: str) -> str:
        if self._strip_accents:
            # Like llama.cpp: the first character only, also of a Hangul syllable.
            char = unicodedata.normalize("NFD", char)[0] if category(char) != "-" else char
        if is_space(char):
            return " "
        kind = category(char)
        if char == "\ufffd" or kind == "C" or (self._strip_accents and kind == "M"):
            return ""
        word = kind == "P" or (char < "\x7f" and kind == "S")
        word = word or any(first <= char <= last for first, last in _CHINESE)
        small = lower(char) if self._lowercase else char
        return f" {small} " if word else small
