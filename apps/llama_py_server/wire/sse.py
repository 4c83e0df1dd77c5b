"""Server-sent events, and JSON as text (server-common.cpp:format_oai_sse)."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from llama_py.support.stopping import iterate_checked

PING = b":\n\n"  # a comment as keep-alive
DONE = b"data: [DONE]\n\n"
_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False)


class Frame(NamedTuple):
    """data, perhaps with a name."""

    data: Any
    name: str = ""


class StreamForm(NamedTuple):
    """Form of a stream. ping: keep-alive between two frames, or empty."""

    media_type: str
    encode: Callable[[Frame, Callable[[Any], bytes]], bytes]
    ping: bytes


def dumps(value: Any) -> bytes:
    """Encode JSON as UTF-8; lone surrogates become U+FFFD, numbers that JSON lacks null."""
    return _encode(value, _ENCODER.encode)


def dumps_by_steps(value: Any) -> bytes:
    """Return the JSON of a large value; it lets other threads run, and can be stopped."""

    def encode_text(value: Any) -> str:
        found = io.StringIO()
        for piece in iterate_checked(_ENCODER.iterencode(value)):
            found.write(piece)
        return found.getvalue()

    return _encode(value, encode_text)


def _encode(value: Any, text_of: Callable[[Any], str]) -> bytes:
    try:
        text = text_of(value)
    except ValueError:
        text = text_of(_finite(value))
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError:
        return "".join("�" if 0xD800 <= ord(c) < 0xE000 else c for c in text).encode("utf-8")


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if abs(value) < float("inf") else None
    if isinstance(value, Mapping):
        return {key: _finite(v) for key, v in value.items()}
    return [_finite(v) for v in value] if isinstance(value, list | tuple) else value


def encode(frame: Frame, dumps: Callable[[Any], bytes] = dumps) -> bytes:
    name = f"event: {frame.name}\n".encode() if frame.name else b""
    return name + b"data: " + dumps(frame.data) + b"\n\n"


def encode_line(frame: Frame, dumps: Callable[[Any], bytes] = dumps) -> bytes:
    """Return a frame as a line of JSON."""
    return dumps(frame.data) + b"\n"


EVENTS = StreamForm("text/event-stream", encode, PING)
LINES = StreamForm("application/x-ndjson", encode_line, b"")
