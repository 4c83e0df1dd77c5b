"""Chat page at `/`, served from the files that dev/make/chat_page builds into the package."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import cache
from importlib.resources import files

from starlette.requests import Request
from starlette.responses import Response

TYPES = {
    "index.html": "text/html; charset=utf-8",
    "page.css": "text/css; charset=utf-8",
    "page.js": "text/javascript; charset=utf-8",
    "LICENSES.txt": "text/plain; charset=utf-8",
}

# Only same-origin resources: model output cannot load resources, and no page can frame this one.
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self';"
    " connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none';"
    " frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}

Handle = Callable[[Request], Awaitable[Response]]


def file(name: str) -> Handle:
    """Return a handler that serves one file of the page, without an API key or a model."""

    async def handle(request: Request) -> Response:
        return Response(_content(name), media_type=TYPES[name], headers=HEADERS)

    return handle


PATHS = {"/": "index.html", **{f"/{name}": name for name in TYPES if name != "index.html"}}


@cache
def _content(name: str) -> bytes:
    return (files("llama_py_server") / "page" / name).read_bytes()
