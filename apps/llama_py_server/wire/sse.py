"""Server-sent events, and JSON as text (server-common.cpp:format_oai_sse)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

PING = b":\n\n"  # a comment: nothing but a sign of life
DONE = b"data: [DONE]\n\n"


class Frame(NamedTuple):
    """data, perhaps with a name."""

    data: Any
    name: str = ""


def dumps(value: Any) -> bytes:
    """JSON as UTF-8. Lone surrogates, which no UTF-8 has, become U+FFFD; numbers that JSON lacks
    become null."""
    try:
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    except ValueError:
        text = json.dumps(_finite(value), ensure_ascii=False, separators=(",", ":"))
    return text.encode("utf-8", "replace") if text.isascii() else _encoded(text)


def _encoded(text: str) -> bytes:
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


def encode(frame: Frame) -> bytes:
    name = f"event: {frame.name}\n".encode() if frame.name else b""
    return name + b"data: " + dumps(frame.data) + b"\n\n"
