"""Writers of replies, one file per API."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

from llama_py_server.wire.sse import DONE, Frame, StreamForm

if TYPE_CHECKING:
    from llama_py_server.stream.reply import Change, Reply
    from llama_py_server.wire.errors import HTTPError

__all__ = ["DONE", "Frame", "ReplyWriter"]


class ReplyWriter(Protocol):
    """Writes the replies of one request.

    end   last bytes of a stream
    form  form of a stream
    """

    end: bytes
    form: StreamForm

    def write_body(self, replies: Sequence[Reply]) -> Any:
        """Return the body, once all replies have ended."""

    def progress(self, reply: Reply) -> list[Frame]:
        """Return frames with the prompt's progress, if requested."""

    def partial(self, reply: Reply, change: Change) -> list[Frame]:
        """Return frames with a token's change; also for the last token."""

    def final(self, reply: Reply) -> list[Frame]:
        """Return frames for the end of a reply."""

    def error(self, error: HTTPError) -> Frame:
        """Return the frame of an error that ends a stream."""
