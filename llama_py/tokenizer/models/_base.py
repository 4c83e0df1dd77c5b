"""What a tokenizer model is; one file each beside this one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

from ggml_py.errors import TokenizerError
from llama_py.tokenizer.vocab import TokenType, Vocab

SPACE = "\u2581"  # stands for a space inside tokens
LONG = 256  # characters of a word whose ids are not kept for the next time


class TextModel(ABC):
    """What differs between tokenizer models: plain text (no special tokens) to ids, and back.

    `names` are the values of `tokenizer.ggml.model` that the class serves.
    """

    names: ClassVar[tuple[str, ...]]
    vocab: Vocab

    @abstractmethod
    def __init__(self, meta: Mapping[str, Any]) -> None:
        """Raises TokenizerError for metadata that is missing or broken."""

    @abstractmethod
    def encode(self, text: str) -> list[int]:
        """The ids of a text: a whole one, or what stands between two special tokens."""

    def normal(self, text: str) -> bytes:
        """A normal token's bytes."""
        return text.replace(SPACE, " ").encode("utf-8", "surrogateescape")

    def piece(self, text: str, type: int) -> bytes:
        """The bytes that a token of a type stands for (llama-vocab.cpp:impl::token_to_piece)."""
        if type == TokenType.NORMAL:
            return self.normal(text)
        if type == TokenType.BYTE:
            return _byte(text)
        if type in (TokenType.CONTROL, TokenType.UNKNOWN, TokenType.USER_DEFINED):
            return text.encode("utf-8", "surrogateescape")
        return b""


def _byte(text: str) -> bytes:
    """`<0x0A>` -> b"\\n"."""
    try:
        return bytes.fromhex(text[3:5])
    except ValueError:
        raise TokenizerError(f"token {text!r} has type BYTE, so it must look like <0x0A>") from None
