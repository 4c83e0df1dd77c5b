"""Images in messages, as content parts in the form of the OpenAI API.

{"role": "user", "content": [
    {"type": "image_url", "image_url": {"url": "data:image/png;base64,..."}},
    {"type": "text", "text": "What is this?"},
]}
"""

from __future__ import annotations

import base64
import secrets
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from ggml_py.errors import ModelError
from llama_py.chat.messages import IMAGE, content_parts, has_images
from llama_py.vision.image import Image, decode_data_url

Message = Mapping[str, Any]
Given = str | Path | bytes | Image  # a file, its bytes, or a decoded image

# Placeholder of an image in text that was rendered from messages. It is random, so clients cannot
# inject it.
PLACE = f"<__media_{secrets.token_hex(16)}__>"


def read_image(image: Given) -> Image:
    """Read an image; ModelError if that fails."""
    if isinstance(image, Image):
        return image
    return Image.read(image) if isinstance(image, bytes) else Image.open(image)


def image_part(image: Given) -> dict[str, Any]:
    """Return the content part of an image; ModelError if it is unreadable."""
    read_image(image)
    if isinstance(image, Image):
        return {"type": IMAGE, IMAGE: image}
    data = image if isinstance(image, bytes) else Path(image).read_bytes()
    url = f"data:application/octet-stream;base64,{base64.b64encode(data).decode()}"
    return {"type": IMAGE, IMAGE: {"url": url}}


def with_images(content: Any, images: Sequence[Given]) -> Any:
    """Return a message's content with images before it."""
    if not images:
        return content
    said = [{"type": "text", "text": content}] if isinstance(content, str) else [*content]
    return [*map(image_part, images), *said]


def mark_images(messages: Sequence[Message]) -> list[Message]:
    """Return messages with text contents, with PLACE for each image."""
    return [{**m, "content": _text(content_parts(m))} if has_images([m]) else m for m in messages]


def collect_images(
    messages: Sequence[Message], media_path: str | Path | None = None
) -> list[Given]:
    """Return the images of messages as given, not decoded.

    media_path  folder of files that URLs (file:NAME) may name; None: not allowed

    Raises ModelError for an unavailable image.
    """
    parts = (part for m in messages for part in content_parts(m))
    return [_image(part, media_path) for part in parts if part.get("type") == IMAGE]


def _text(parts: Iterable[Mapping[str, Any]]) -> str:
    """Join the parts of a content (common_chat_msg::to_json_oaicompat), with a newline between
    texts, but not next to images."""
    text, after_image = "", False
    for part in parts:
        if part.get("type") == IMAGE:
            text, after_image = text + PLACE, True
        elif part.get("type") == "text":
            text += ("" if after_image or not text else "\n") + str(part.get("text", ""))
            after_image = False
    return text


def _image(part: Mapping[str, Any], media_path: str | Path | None) -> Given:
    url = part.get(IMAGE)
    if isinstance(url, Mapping):
        url = url.get("url")
    if isinstance(url, Image | bytes | Path):
        return url
    if not isinstance(url, str):
        raise ModelError("an image_url must be {'url': 'data:image/...;base64,...'}")
    if not url.startswith("file:"):
        return decode_data_url(url)
    if media_path is None:
        raise ModelError(
            "file: URLs are not enabled; send the image as a data: URL, or set media_path"
        )
    return resolve_path(url, media_path)


def resolve_path(url: str, media_path: str | Path) -> Path:
    """Return the file in a folder that a URL (file:NAME) names; ModelError outside the folder."""
    folder = Path(media_path).resolve()
    try:
        path = (folder / unquote(urlsplit(url).path).lstrip("/")).resolve()
    except (OSError, RuntimeError, ValueError) as e:  # too long, a circle of links, a zero byte
        why = ascii(str(e)[:60])
        raise ModelError(f"{url[:40]!a} does not name a file of {folder}: {why}") from None
    if not path.is_relative_to(folder):
        raise ModelError(f"{url} is outside {folder}; use a file of this folder")
    return path
