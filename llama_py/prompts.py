"""What may be given as a prompt: a text, its UTF-8 bytes, or token ids."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from ggml_py.errors import ModelError
from llama_py.batch import F32, Batch, Wanted
from llama_py.cparams import CParams

if TYPE_CHECKING:
    from llama_py.tokenizer import Tokenizer

Prompt = str | bytes | Sequence[int]


class Decoding(Protocol):
    """What reads a prompt: `llama_py.Context`."""

    cparams: CParams

    def decode(self, tokens: Batch, logits: Wanted = "last") -> F32: ...


class Mixed(list[int]):
    """The ids of a prompt that is more than tokens: an id below zero is a position of something
    else (llama_py.vision.prompt).

    before    ids of the prompt that a sequence has already
    n_tokens  cells that it takes, which may be more than positions
    n_beyond  how many more, of all of the prompt
    """

    before: list[int]
    n_tokens: int
    n_beyond: int

    @abstractmethod
    def rest(self, n: int) -> Mixed | None:
        """What follows the first n positions; None if nothing may begin there."""

    @abstractmethod
    def read(self, ctx: Decoding, seq_id: int) -> F32:
        """Let a sequence go on with it. -> F32 [1, n_vocab], of the last token"""


def n_cells(ids: Sequence[int]) -> int:
    """How many cells a prompt takes."""
    return ids.n_tokens if isinstance(ids, Mixed) else len(ids)


def is_mixed(*parts: Sequence[int]) -> bool:
    """Whether some of the ids are of no tokens."""
    return any(id < 0 for ids in parts for id in ids)


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
    if isinstance(prompt, Mixed):
        return prompt
    if isinstance(prompt, (str, bytes, bytearray)):
        return tokenizer.tokenize(text_of(prompt), add_special)
    try:
        return [int(id) for id in prompt]
    except (TypeError, ValueError):
        raise ModelError(
            f"a prompt is a text or a list of token ids, not {type(prompt).__name__}"
            " (of a conversation's messages: chat)"
        ) from None
