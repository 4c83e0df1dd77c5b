"""What clients are told of answers: one file for each form."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

from llama_py_server.wire.sse import DONE, Event

if TYPE_CHECKING:
    from llama_py_server.stream.reply import Answer, Change
    from llama_py_server.wire.errors import HTTPError

__all__ = ["DONE", "Event", "Writer"]


class Writer(Protocol):
    """Writes the answers of one request.

    end  what stands at the end of a stream
    """

    end: bytes

    def whole(self, answers: Sequence[Answer]) -> Any:
        """The body, once all have ended."""

    def progress(self, answer: Answer) -> list[Event]:
        """How much of the prompt was read, where the request asked for that."""

    def partial(self, answer: Answer, change: Change) -> list[Event]:
        """What a token brought; also of the last one."""

    def final(self, answer: Answer) -> list[Event]:
        """The end of an answer."""

    def error(self, error: HTTPError) -> Event:
        """An error in the middle of a stream, which it ends."""
