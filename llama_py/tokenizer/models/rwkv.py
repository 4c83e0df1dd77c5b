"""RWKV's World tokenizer (`tokenizer.ggml.model` = rwkv): the longest token, byte by byte.

Like llama-vocab.cpp:llm_tokenizer_rwkv_session. In a GGUF file a token's text is escaped like
Python's `b"..."`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cached_property
from typing import Any

from llama_py.support.stopping import EVERY, check_stopped
from llama_py.tokenizer.models._base import TextModel
from llama_py.tokenizer.models._trie import Trie, longest_match, trie
from llama_py.tokenizer.vocab import Defaults, read_vocab

_ESCAPE = re.compile(rb"\\(?:x([0-9a-f]{2})|(.))", re.DOTALL)
_ESCAPED = {b"t": b"\t", b"n": b"\n", b"r": b"\r"}


class WorldTokenizer(TextModel):
    """A byte that starts no token is the unknown token; texts have no BOS and no EOS."""

    names = ("rwkv",)

    def __init__(self, meta: Mapping[str, Any]) -> None:
        self.vocab = read_vocab(meta, Defaults(first=(), last=()))

    def encode(self, text: str) -> list[int]:
        ids: list[int] = []
        data, at = text.encode("utf-8", "surrogateescape"), 0
        while at < len(data):
            if not len(ids) % EVERY:
                check_stopped()
            at, id = longest_match(self._trie, data, at) or (at + 1, self.vocab.unk)
            ids.append(id)
        return ids

    def piece(self, text: str, type: int) -> bytes:
        return _unescape(text)

    @cached_property
    def _trie(self) -> Trie:
        return trie((_unescape(text), i) for i, text in enumerate(self.vocab.texts))


def _unescape(text: str) -> bytes:
    """Return the bytes of an escaped text such as `\\xe4\\n`."""
    return _ESCAPE.sub(_byte, text.encode("utf-8", "surrogateescape"))


def _byte(match: re.Match[bytes]) -> bytes:
    number, character = match.groups()
    return bytes([int(number, 16)]) if number else _ESCAPED.get(character, character)
