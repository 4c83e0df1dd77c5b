"""Responses without a model: JSON, errors, headers."""

from __future__ import annotations

from collections.abc import Mapping

from starlette.responses import Response

from llama_py_server.wire.errors import HTTPError, UnknownModel
from llama_py_server.wire.sse import dumps, dumps_by_steps

JSON = "application/json; charset=utf-8"
OLLAMA = "/api/"  # part of all paths of Ollama's API
GONE = Response(status_code=499)  # response to a client that has disconnected


def as_json(body: object, status: int = 200) -> Response:
    return Response(dumps(body), status, media_type=JSON)


def as_long_json(body: object) -> Response:
    """Return a response for a possibly large body; for `work.read`."""
    return Response(dumps_by_steps(body), media_type=JSON)


def as_written(headers: Mapping[str, str]) -> list[tuple[bytes, bytes]]:
    """Return headers with capitals, like llama-server's: some clients expect them."""
    return [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]


def as_error(error: HTTPError, path: str = "") -> Response:
    """Return an error in the form of the path's API: Ollama's errors are strings."""
    return as_ollama_error(error) if OLLAMA in path else as_json({"error": error.body}, error.code)


def as_ollama_error(error: HTTPError) -> Response:
    """Return an error in the form of Ollama."""
    code = 404 if isinstance(error, UnknownModel) else error.code
    return as_json({"error": error.message}, code)


def as_tei_error(error: HTTPError) -> Response:
    """Return an error in the form of text-embeddings-inference."""
    code, kind = _TEI_ERRORS.get(error.kind, (error.code, "Backend"))
    return as_json({"error": error.message, "error_type": kind}, code)


def as_tgi_error(error: HTTPError) -> Response:
    """Return an error in the form of text-generation-inference."""
    return as_json(tgi_error(error), _TGI_ERRORS.get(error.kind, (error.code, ""))[0])


def tgi_error(error: HTTPError) -> dict[str, str]:
    kind = _TGI_ERRORS.get(error.kind, (0, "generation"))[1]
    return {"error": error.message, "error_type": kind}


_TEI_ERRORS = {
    "invalid_request_error": (422, "Validation"),
    "exceed_context_size_error": (422, "Validation"),
    "request_too_large": (413, "Validation"),
    "rate_limit_error": (429, "Overloaded"),
    "not_supported_error": (424, "Backend"),
    "unavailable_error": (503, "Unhealthy"),
}
_TGI_ERRORS = {
    "invalid_request_error": (422, "validation"),
    "exceed_context_size_error": (422, "validation"),
    "request_too_large": (413, "validation"),
    "rate_limit_error": (429, "overloaded"),
    "not_supported_error": (424, "generation"),
    "unavailable_error": (503, "overloaded"),
}
