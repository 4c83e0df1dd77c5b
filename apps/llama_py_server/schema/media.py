"""Images of requests, and their permitted sources (server-common.cpp:handle_media)."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ggml_py.errors import ModelError
from llama_py_server.schema.fetch import Fetching
from llama_py_server.wire.body import Body, inner, text
from llama_py_server.wire.errors import HTTPError, invalid

if TYPE_CHECKING:
    from llama_py_server.models.state import ModelState

KINDS = {"image_url": "image", "input_audio": "audio", "input_video": "video", "video_url": "video"}


class Media:
    """Images of one request: read or downloaded, but not decoded yet."""

    def __init__(self, state: ModelState) -> None:
        self._sees, self._folder = state.sees, state.params.media_path
        self._fetching = Fetching(state.params.media_urls)

    def part(self, part: Body) -> Body:
        """Return an image part with its bytes or file. HTTPError if it is unavailable, or the model
        has no vision encoder."""
        kind = KINDS[text(part, "type")]
        if kind != "image" or not self._sees:
            raise HTTPError(
                "server_error",
                f"{kind} input is not supported - hint: if this is unexpected, you"
                " may need to provide the mmproj",
            )
        given = part.get("image_url")
        url = given if isinstance(given, str) else text(inner(part, "image_url"), "url")
        return {"type": "image_url", "image_url": self._find_media(url)}

    def _find_media(self, url: str) -> bytes | Path:
        if url.startswith(("http://", "https://")):
            return self._fetching.get(url)
        if url.startswith("file://"):
            return self._file(url)
        return decode_data_url(url) if url.startswith("data:") else decode_base64(url)

    def _file(self, url: str) -> Path:
        from llama_py.vision.messages import resolve_path

        if not self._folder:
            raise invalid("file:// URLs are not allowed unless --media-path is specified")
        name = url.removeprefix("file://").lstrip("/")
        try:
            path = resolve_path(f"file:{name}", self._folder)
        except ModelError:
            raise invalid(f"file path is not allowed: {name[:80]}") from None
        if not path.is_file():
            raise invalid(f"file does not exist or cannot be opened: {name[:80]}")
        return path


class TextOnly(Media):
    """Refusal of images, for requests whose messages must be text."""

    def part(self, part: Body) -> Body:
        kind = KINDS[text(part, "type")]
        raise invalid(f"Field 'messages': {kind} input is not supported here; send text only")


def decode_data_url(url: str) -> bytes:
    """Decode the image of a URL that begins with "data:". HTTPError for a wrong URL."""
    head, comma, body = url.partition(",")
    if not comma or "," in body:
        raise invalid("Invalid uri-encoded base64 value")
    if not head.startswith("data:image/"):
        raise invalid(f"Invalid uri format: {head[:80]}")
    if not head.endswith("base64"):
        raise invalid("uri must be base64 encoded")
    return decode_base64(body)


def decode_base64(given: Any) -> bytes:
    """Decode Base64, with or without padding; HTTPError if it is invalid."""
    try:
        said = "".join(given.split()).rstrip("=")
        data = base64.b64decode(said + "=" * (-len(said) % 4), validate=True)
    except (AttributeError, ValueError):
        data = b""
    if not data:
        raise invalid("Invalid base64 value")
    return data
