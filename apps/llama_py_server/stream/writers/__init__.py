"""Replies in the form that the client wants: one file for each form."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

from llama_py_server.wire.sse import DONE, Frame

if TYPE_CHECKING:
    from llama_py_server.stream.reply import Change, Reply
    from llama_py_server.wire.errors import HTTPError

__all__ = ["DONE", "Frame", "ReplyWriter"]


class ReplyWriter(Protocol):
    """Writes the replies of one request.

    end  what stands at the end of a stream
    """

    end: bytes

    def whole(self, replies: Sequence[Reply]) -> Any:
        """The body, once all have ended."""

    def progress(self, reply: Reply) -> list[Frame]:
        """How much of the prompt was read, where the request asked for that."""

    def partial(self, reply: Reply, change: Change) -> list[Frame]:
        """What a token brought; also of the last one."""

    def final(self, reply: Reply) -> list[Frame]:
        """The end of a reply."""

    def error(self, error: HTTPError) -> Frame:
        """An error in the middle of a stream, which it ends."""
