"""Unigrams (`tokenizer.ggml.model` = t5): the segmentation with the best score.

Like llama-vocab.cpp:llm_tokenizer_ugm_session, byte for byte. The `tokenizers` library differs in
normalization and scores (graphemes; one score for the unknown over all tokens).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any

import numpy as np

from llama_py.support.stopping import EVERY, check_stopped
from llama_py.tokenizer.characters import decode_utf8
from llama_py.tokenizer.models._base import SPACE, TextModel
from llama_py.tokenizer.models._charsmap import Charsmap
from llama_py.tokenizer.models._trie import Trie, depth, matches, trie
from llama_py.tokenizer.nfc import nfc
from llama_py.tokenizer.vocab import PREFIX, Defaults, TokenType, flag, read_vocab

_DEFAULTS = Defaults(add_eos=True, special_ids={"eos": 1, "unk": 2, "pad": 0})
_USABLE = (TokenType.NORMAL, TokenType.USER_DEFINED, TokenType.UNUSED)
_UNKNOWN_PENALTY = np.float32(10.0)
_REPLACEMENT = "\ufffd".encode()


class Unigram(TextModel):
    """Characters without a token become unknown tokens, one for adjacent characters."""

    names = ("t5",)

    def __init__(self, meta: Mapping[str, Any]) -> None:
        self.vocab = read_vocab(meta, _DEFAULTS)
        charsmap = meta.get(PREFIX + "precompiled_charsmap")
        self._charsmap = None if charsmap is None else Charsmap(charsmap)
        self._nfc = flag(meta, "normalizer.nfc", False)
        self._merge_spaces = flag(meta, "remove_extra_whitespaces", False)

    def encode(self, text: str) -> list[int]:
        """Encode a text; each byte that is not UTF-8 becomes U+FFFD."""
        text = nfc(decode_utf8(text)) if self._nfc else text
        data = self._normalize(text.encode("utf-8", "surrogateescape"))
        starts, tokens = self._segment(data)
        ids: list[int] = []
        at = len(data)
        while at > 0:
            if not (ids and ids[-1] == tokens[at] == self.vocab.unk):
                ids.append(tokens[at])
            at = starts[at]
        return ids[::-1]

    def _segment(self, data: bytes) -> tuple[list[int], list[int]]:
        """Find the start of the last token of the best segmentation up to each position, and its
        id."""
        root, scores, n = self._trie, self._scores, len(data)
        best, starts, tokens = [-np.inf] * (n + 1), [0] * (n + 1), [0] * (n + 1)
        best[0], unk, unk_score, at = 0.0, self.vocab.unk, self._unk_score, 0
        while at < n:
            if not at % EVERY:
                check_stopped()
            here, next = best[at], min(at + _width(data[at]), n)
            known = False
            for end, token in matches(root, data, at):
                known = known or end == next
                if here + scores[token] > best[end]:
                    best[end], starts[end], tokens[end] = here + scores[token], at, token
            if not known and here + unk_score > best[next]:
                best[next], starts[next], tokens[next] = here + unk_score, at, unk
            at = next
        return starts, tokens

    @cached_property
    def _trie(self) -> Trie:
        return self._build_trie(*_USABLE)

    @cached_property
    def _user_defined(self) -> Trie:
        return self._build_trie(TokenType.USER_DEFINED)

    def _build_trie(self, *types: TokenType) -> Trie:
        texts = zip(self.vocab.texts, self.vocab.types, strict=True)
        return trie(
            (text.encode("utf-8", "surrogateescape"), i)
            for i, (text, type_) in enumerate(texts)
            if type_ in types
        )

    @cached_property
    def _scores(self) -> list[float]:
        """A user-defined token is better than any other: scores are logarithms."""
        pairs = zip(self.vocab.scores, self.vocab.types, strict=True)
        return [0.0 if type_ == TokenType.USER_DEFINED else score for score, type_ in pairs]

    @cached_property
    def _unk_score(self) -> float:
        pairs = zip(self.vocab.scores, self.vocab.types, strict=True)
        normal = [score for score, type_ in pairs if type_ == TokenType.NORMAL]
        lowest = np.float32(min(normal, default=np.finfo(np.float32).max))
        return float(lowest - _UNKNOWN_PENALTY)

    def _normalize(self, text: bytes) -> bytes:
        parts, at = [], 0
        while at < len(text):
            if not at % EVERY:
                check_stopped()
            at, part = self._normalize_part(text, at)
            parts.append(part)
        text, space = b"".join(parts), SPACE.encode()
        if self._merge_spaces:
            return b"".join(space + word for word in text.split(b" ") if word)
        if self.vocab.add_space_prefix and text.strip(b" "):
            text = b" " + text
        return text.replace(b" ", space)

    def _normalize_part(self, text: bytes, at: int) -> tuple[int, bytes]:
        """Return the position after the normalized part at `at`, and its replacement."""
        # Like llama.cpp: also keep texts that only begin like a user-defined token.
        if n := depth(self._user_defined, text, at):
            return at + n, text[at : at + n]
        if self._charsmap and (found := self._charsmap.find_longest(text, at)):
            return found
        end = at + _width(text[at])
        if _is_character(text[at:end]):
            return end, text[at:end]
        return at + 1, _REPLACEMENT


def _width(first: int) -> int:
    """Return the bytes of a character, by its first byte (unicode.cpp:unicode_len_utf8)."""
    return 1 if first < 0xC0 else 2 if first < 0xE0 else 3 if first < 0xF0 else 4


def _is_character(data: bytes) -> bool:
    """Return True if unicode.cpp:unicode_cpt_from_utf8 accepts it, with any code point."""
    if data[0] < 0x80:
        return True
    whole = 0xC0 <= data[0] < 0xF8 and len(data) == _width(data[0])
    return whole and all(0x80 <= c < 0xC0 for c in data[1:])
