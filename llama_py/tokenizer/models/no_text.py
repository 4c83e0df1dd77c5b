"""Placeholder for files without a vocabulary (`tokenizer.ggml.model` = none, no_vocab), and
tests."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ggml_py.errors import TokenizerError
from llama_py.gguf.metadata import describe, printable
from llama_py.support.stopping import iterate_checked
from llama_py.tokenizer.models._base import TextModel
from llama_py.tokenizer.vocab import PREFIX, Defaults, read_vocab

_MAX_TOKENS = 1 << 20
_DEFAULTS = Defaults(first=(), last=())


class NoText(TextModel):
    """Ids have names to show (`tok_5`), but no text can be cut into them."""

    names = ("none", "no_vocab")

    def __init__(self, meta: Mapping[str, Any]) -> None:
        self.vocab = read_vocab(
            {PREFIX + "tokens": [f"tok_{i}" for i in range(_vocab_size(meta))]}, _DEFAULTS
        )

    def encode(self, text: str) -> list[int]:
        raise TokenizerError(
            "this model file has no vocabulary, so it cannot tokenize text; use a file that has "
            "one, or pass token ids (llama-py-debug --tokens 1,2,3)"
        )

    def normal(self, text: str) -> bytes:
        return text.encode("utf-8", "surrogateescape")


class HashTokenizer(TextModel):
    """Tokenizer for tiny models of tests (`test`): five bytes are a token, by their hash."""

    names = ("test",)

    def __init__(self, meta: Mapping[str, Any]) -> None:
        self.vocab = read_vocab(meta, _DEFAULTS)

    def encode(self, text: str) -> list[int]:
        data, ids = text.encode("utf-8", "surrogateescape"), []
        for start in iterate_checked(range(0, len(data), 5)):
            number = 0
            for byte in data[start : start + 5]:
                number = number * 31 + byte
            ids.append(number % len(self.vocab.texts))
        return ids

    def piece(self, text: str, type: int) -> bytes:
        return format(self.vocab.ids[text], "x").encode()


def _vocab_size(meta: Mapping[str, Any]) -> int:
    key = printable(f"{meta.get('general.architecture')}.vocab_size")
    size = meta.get(key, 0)
    if not isinstance(size, int) or not 0 <= size <= _MAX_TOKENS:
        shown = describe(size)
        raise TokenizerError(f"{key} must be an integer in 0..{_MAX_TOKENS}, got {shown}")
    return size
