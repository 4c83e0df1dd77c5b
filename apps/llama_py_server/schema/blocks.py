"""Conversion of Anthropic's message blocks to OpenAI's parts: text, images, documents, search
results."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llama_py_server.wire.body import Body, inner, objects, text
from llama_py_server.wire.errors import HTTPError, invalid


def convert_blocks(blocks: list[Body]) -> list[Body]:
    """Return the parts of blocks. Raises HTTPError for a type that the model cannot be shown."""
    found = []
    for block in blocks:
        kind = block.get("type")
        if not isinstance(kind, str) or kind not in _READERS:
            raise refuse_part("block", kind, "send its text as a 'text' block")
        found += _READERS[kind](block)
    return found


def refuse_part(what: str, kind: Any, remedy: str) -> HTTPError:
    """Return the error for a typed part that is not read."""
    return invalid(f"{what} of type {kind!r} is not supported; {remedy}")


def string(block: Body, name: str) -> str:
    """Return a text that a block must have."""
    if not isinstance(block.get(name), str):
        raise invalid(f"'{name}' of a {block.get('type')!r} block must be a string")
    return text(block, name)


def _text(block: Body) -> list[Body]:
    return [{"type": "text", "text": string(block, "text")}]


def _image(block: Body) -> list[Body]:
    source = inner(block, "source")
    kind = source.get("type")
    if kind == "base64":
        media_type = text(source, "media_type", "image/jpeg")
        url = f"data:{media_type};base64,{string(source, 'data')}"
    elif kind == "url":
        url = string(source, "url")
    else:
        raise refuse_part("image source", kind, "send 'base64' or 'url'")
    return [{"type": "image_url", "image_url": {"url": url}}]


def _document(block: Body) -> list[Body]:
    source = inner(block, "source")
    kind = source.get("type")
    if kind == "text":
        parts = [{"type": "text", "text": string(source, "data")}]
    elif kind == "content":
        parts = _content(source)
    else:
        raise refuse_part("document source", kind, "send the document's text, as 'text'")
    return _prepend_title(block, ("title", "context"), parts)


def _search_result(block: Body) -> list[Body]:
    return _prepend_title(block, ("title", "source"), _content(block))


def _content(block: Body) -> list[Body]:
    content = block.get("content")
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return convert_blocks(objects(block, "content"))


def _prepend_title(block: Body, names: tuple[str, ...], parts: list[Body]) -> list[Body]:
    """Put a block's title and other texts in lines before its content."""
    lines = [string(block, name) for name in names if block.get(name)]
    head = [{"type": "text", "text": "\n".join(lines)}] if lines else []
    return [*head, *parts]


_READERS: dict[str, Callable[[Body], list[Body]]] = {
    "text": _text,
    "image": _image,
    "document": _document,
    "search_result": _search_result,
}
