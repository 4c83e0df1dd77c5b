"""What may be given as a prompt: a text, its UTF-8 bytes, or token ids."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ggml_py.errors import ModelError

if TYPE_CHECKING:
    from llama_py.tokenizer import Tokenizer

Prompt = str | bytes | Sequence[int]


def text_of(text: str | bytes | bytearray) -> str:
    """A text that may be given as UTF-8. ModelError for other bytes."""
    if isinstance(text, str):
        return text
    try:
        return bytes(text).decode()
    except UnicodeDecodeError as e:
        raise ModelError(
            f"the text is given as bytes, but they are not UTF-8 ({e.reason} at byte {e.start});"
            " decode them first, or give token ids as a list"
        ) from None


def ids_of(tokenizer: Tokenizer, prompt: Prompt, add_special: bool = True) -> list[int]:
    """The tokens of a prompt; ids are taken as they are. ModelError for what is none of both."""
    if isinstance(prompt, (str, bytes, bytearray)):
        return tokenizer.tokenize(text_of(prompt), add_special)
    try:
        return [int(id) for id in prompt]
    except (TypeError, ValueError):
        raise ModelError(
            f"a prompt is a text or a list of token ids, not {type(prompt).__name__}"
            " (of a conversation's messages: chat)"
        ) from None
