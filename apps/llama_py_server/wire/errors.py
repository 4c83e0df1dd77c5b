"""Errors in the form that clients get (server-common.cpp:format_error_response)."""

from __future__ import annotations

import re
from errno import EDQUOT, EFBIG, EMFILE, ENFILE, ENOMEM, ENOSPC, EROFS
from typing import Any

from ggml_py.errors import AllocError, ContextError, GGMLError, ModelError
from llama_py.params.texts import without_credentials
from llama_py.serving import Busy, TooLong

CODES = {
    "invalid_request_error": 400,
    "exceed_context_size_error": 400,
    "authentication_error": 401,
    "permission_error": 403,
    "not_found_error": 404,
    "request_too_large": 413,
    "rate_limit_error": 429,
    "server_error": 500,
    "not_supported_error": 501,
    "unavailable_error": 503,
}


class HTTPError(Exception):
    """A response with an error: its kind is a name of CODES; `more` has additional fields."""

    def __init__(self, kind: str, message: str, **more: Any) -> None:
        super().__init__(message)
        self.kind, self.message, self.more = kind, message, more

    @property
    def code(self) -> int:
        return CODES[self.kind]

    @property
    def body(self) -> dict[str, Any]:
        """Object under `error` in the response."""
        return {"code": self.code, "message": self.message, "type": self.kind, **self.more}


class UnknownModel(HTTPError):
    """A request names a model that does not exist: 400, and 404 in Ollama's API."""

    def __init__(self, name: str, remedy: str = "") -> None:
        super().__init__("invalid_request_error", f"model '{name}' not found{remedy}")


def invalid(message: str, **more: Any) -> HTTPError:
    return HTTPError("invalid_request_error", message, **more)


def not_supported(message: str) -> HTTPError:
    return HTTPError("not_supported_error", message)


def as_http_error(e: BaseException) -> HTTPError:
    """Return any error as one for a client."""
    if isinstance(e, HTTPError):
        return e
    if isinstance(e, Busy):
        return HTTPError("unavailable_error", str(e))
    if isinstance(e, TooLong):
        message = (
            f"request ({e.n_prompt} tokens) exceeds the available context size ({e.n_ctx} tokens),"
            " try increasing it"
        )
        more = {"n_prompt_tokens": e.n_prompt, "n_ctx": e.n_ctx}
        return HTTPError("exceed_context_size_error", message, **more)
    why = without_folders(str(e))
    if isinstance(e, AllocError | MemoryError) or why in _NO_THREAD:
        return HTTPError("unavailable_error", f"not enough memory: {why}")
    if isinstance(e, OSError) and e.errno in _SCARCE:
        return HTTPError(
            "unavailable_error",
            f"the server has too few system resources ({e.strerror}); try again later",
        )
    if isinstance(e, ModelError | ContextError):
        return invalid(why)
    if isinstance(e, GGMLError):
        return HTTPError("server_error", why)
    if isinstance(e, OSError):
        why = e.strerror or type(e).__name__
    return HTTPError("server_error", f"{type(e).__name__}: {why}")


_SCARCE = (EMFILE, ENFILE, ENOSPC, EDQUOT, EFBIG, ENOMEM, EROFS)  # resource limits
_NO_THREAD = ("can't start new thread", "can't allocate lock")  # RuntimeErrors of Python


def without_folders(text: str) -> str:
    """Return a text with file names for absolute paths, and with URLs without passwords: clients
    must not see a server's folders."""
    return _FOLDERS.sub("", without_credentials(text))


# A path may have spaces: it begins a word, and only its last part may end with one.
_FOLDERS = re.compile(
    r"""(?<![^\s'"(=,\[])(?:[A-Za-z]:)?[/\\]{1,2}(?:[^/\\:'"\n<>|]*[^/\\:'"\n<>|\s][/\\])+"""
)
