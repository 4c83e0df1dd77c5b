"""Base class of tokenizer models, which have one file each."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

from ggml_py.errors import TokenizerError
from llama_py.tokenizer.vocab import TokenType, Vocab

SPACE = "\u2581"  # replaces a space inside tokens
LONG = 256  # minimum characters of a word that is not cached


class TextModel(ABC):
    """Tokenizer model: plain text (no special tokens) to ids, and back.

    `names` are the values of `tokenizer.ggml.model` that the class serves.
    """

    names: ClassVar[tuple[str, ...]]
    vocab: Vocab

    @abstractmethod
    def __init__(self, meta: Mapping[str, Any]) -> None:
        """Read the vocabulary; TokenizerError for missing or broken metadata."""

    @abstractmethod
    def encode(self, text: str) -> list[int]:
        """Return the ids of a text: a whole one, or one between two special tokens."""

    def normal(self, text: str) -> bytes:
        """Return a normal token's bytes."""
        return text.replace(SPACE, " ").encode("utf-8", "surrogateescape")

    def piece(self, text: str, type: int) -> bytes:
        """Return the bytes of a token by its type (llama-vocab.cpp:impl::token_to_piece)."""
        if type == TokenType.NORMAL:
            return self.normal(text)
        if type == TokenType.BYTE:
            return _byte(text)
        if type in (TokenType.CONTROL, TokenType.UNKNOWN, TokenType.USER_DEFINED):
            return text.encode("utf-8", "surrogateescape")
        return b""


def _byte(text: str) -> bytes:
    """Return the byte that a text such as `<0x0A>` represents."""
    try:
        return bytes.fromhex(text[3:5])
    except ValueError:
        raise TokenizerError(
            f"token {text!r} has type BYTE, so it must look like <0x0A>; convert the model again"
        ) from None
