"""Responses without a model: JSON, errors, headers."""

from __future__ import annotations

from collections.abc import Mapping

from starlette.responses import Response

from llama_py_server.wire.errors import HTTPError
from llama_py_server.wire.sse import dumps, dumps_by_steps

JSON = "application/json; charset=utf-8"
GONE = Response(status_code=499)  # response to a client that has disconnected


def as_json(body: object, status: int = 200) -> Response:
    return Response(dumps(body), status, media_type=JSON)


def as_long_json(body: object) -> Response:
    """Return a response for a possibly large body; for `work.read`."""
    return Response(dumps_by_steps(body), media_type=JSON)


def as_written(headers: Mapping[str, str]) -> list[tuple[bytes, bytes]]:
    """Return headers with capitals, like llama-server's: some clients expect them."""
    return [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]


def as_error(error: HTTPError) -> Response:
    return as_json({"error": error.body}, error.code)
