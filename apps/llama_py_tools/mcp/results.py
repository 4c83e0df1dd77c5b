"""Results of tool calls as text."""

from __future__ import annotations

import json
from typing import Any

MAX_TEXT = 1 << 20  # characters of a result


def clean(text: str) -> str:
    """Remove control characters, except newlines and tabs: a terminal would obey them."""
    text = text.replace("\r\n", "\n")
    return "".join(c for c in text if c in "\n\t" or not (c < " " or "\x7f" <= c < "\xa0"))


def escape_line(text: str) -> str:
    """Escape characters that a terminal does not print."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def result_text(result: Any) -> str:
    """Return a `CallToolResult` as text, cut to MAX_TEXT.

    Images, audio and other data become a line with their type. Structured content replaces
    missing blocks.
    """
    parts = [_block_text(block) for block in result.content]
    structured = result.structured_content
    if not parts and structured is not None:
        parts = [json.dumps(structured, ensure_ascii=False, default=str)]
    text = clean("\n".join(parts))
    if len(text) > MAX_TEXT:
        text = f"{text[:MAX_TEXT]}\n{cut_note(MAX_TEXT, len(text))}"
    return text or "(empty result)"


def cut_note(n: int, n_all: int) -> str:
    """Return the line that ends a result which is not complete."""
    return f"[cut: the first {n} of {n_all} characters]"


def _block_text(block: Any) -> str:
    """Return a content block: its text, or a line about its data."""
    if block.type == "text":
        return str(block.text)
    resource = getattr(block, "resource", None)
    if resource is not None and isinstance(getattr(resource, "text", None), str):
        return str(resource.text)
    mime = getattr(block, "mime_type", None) or getattr(resource, "mime_type", None) or ""
    uri = getattr(block, "uri", None) or getattr(resource, "uri", None) or ""
    details = ", ".join(str(one) for one in (mime, uri) if one)
    return f"[{block.type}{f': {details}' if details else ''}; not shown to the model]"
