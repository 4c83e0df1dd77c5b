"""Conversion of token ids to text as they arrive, without broken characters or stop strings."""

from __future__ import annotations

import codecs
from collections.abc import Callable, Container, Sequence
from typing import Protocol

from ggml_py.errors import ModelError


class Pieces(Protocol):
    """Interface of a tokenizer for text streams."""

    def token_to_piece(self, id: int, special: bool = False) -> bytes: ...


class TextStream:
    """The text of a growing list of tokens, piece by piece.

    `push` buffers the bytes of an unfinished character, and text that may begin a stop string;
    `flush` returns the buffer at the end. `stopped` is the stop string that was found: the text
    ends before it, and all later calls return "". Token boundaries do not change the text.

    Texts between turns, such as "\\nUser: ", may also be part of a tool call's arguments. So they
    are stop strings only while no constraint applies.

    Raises ModelError for an empty stop string.
    """

    def __init__(
        self,
        tokenizer: Pieces,
        stop: Sequence[str] = (),
        special: bool = False,
        preserved: Container[int] = (),
        turn_ends: Sequence[str] = (),
        is_constrained: Callable[[], bool] = lambda: False,
    ) -> None:
        """Start a text.

        Args:
            tokenizer: The tokenizer.
            stop: Stop strings.
            special: Show special tokens.
            preserved: Special tokens that are always shown.
            turn_ends: Stop strings while `is_constrained` returns False.
            is_constrained: Return True if a constraint applies to the next token.
        """
        if isinstance(stop, str) or not all(stop):
            raise ModelError(f"stop must be a list of non-empty strings, got {stop!r}")
        self._tokenizer = tokenizer
        self._stop = tuple(stop)
        self._turn_ends, self._is_constrained = tuple(turn_ends), is_constrained
        self._special, self._preserved = special, preserved
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._held = ""
        self.stopped: str | None = None

    def push(self, id: int) -> str:
        """Add a token and return the text that is now certain; invalid UTF-8 becomes U+FFFD."""
        return self._add(self.piece(id), final=False)

    def piece(self, id: int) -> bytes:
        """Return the bytes of a token in the text; b"" for a hidden control token."""
        special = self._special or id in self._preserved
        return self._tokenizer.token_to_piece(id, special)

    def flush(self) -> str:
        """Return the remaining text; call it once, after the last token."""
        return self._add(b"", final=True)

    def _add(self, data: bytes, final: bool) -> str:
        if self.stopped is not None:
            return ""
        text = self._decoder.decode(data, final)
        stop = self._stop
        if self._turn_ends and not self._is_constrained():
            stop += self._turn_ends
        text = self._held + text
        found = [(at + len(s), at, s) for s in stop if (at := text.find(s)) >= 0]
        if found:
            # The first complete one, as if the text had been added character by character.
            _, at, self.stopped = min(found)
            self._held = ""
            return text[:at]
        cut = len(text) if final else len(text) - _may_start(text, stop)
        self._held = text[cut:]
        return text[:cut]


def _may_start(text: str, stop: Sequence[str]) -> int:
    """Return the length of the longest end of a text that starts a stop string."""
    longest = max(map(len, stop), default=0)
    for n in range(min(len(text), longest - 1), 0, -1):
        if any(s.startswith(text[-n:]) for s in stop):
            return n
    return 0
