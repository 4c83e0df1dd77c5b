"""Access control: keys, and pages of other origins (server-http.cpp)."""

from __future__ import annotations

import hmac
import ipaddress
import socket
from collections.abc import Sequence
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from llama_py_server.wire.addresses import list_addresses
from llama_py_server.wire.errors import HTTPError
from llama_py_server.wire.responses import as_error, as_written

if TYPE_CHECKING:
    from llama_py_server.params import ListenParams

_HERE = ("localhost", "127.0.0.1", "::1")
_PRIVATE = (".localhost", ".local", ".internal")  # suffixes that public name servers lack


class KeyCheck:
    """Requires an API key, if keys are configured, except for public paths. The time of a
    comparison does not depend on the number of correct characters."""

    def __init__(self, app: ASGIApp, keys: Sequence[str], public: Sequence[str]) -> None:
        self.app, self.public = app, frozenset(public)
        self.keys = [key.encode() for key in keys]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and self.keys and scope["path"] not in self.public:
            given = given_key(Headers(scope=scope)).encode("latin-1", "replace")
            # compare every key, so that the time does not reveal the matching one
            same = [hmac.compare_digest(given, key) for key in self.keys]
            if not any(same):
                refusal = as_error(
                    HTTPError("authentication_error", "Invalid API Key"), scope["path"]
                )
                await refusal(scope, receive, send)
                return
            scope.setdefault("state", {})["holder"] = same.index(True)
        await self.app(scope, receive, send)


def given_key(headers: Headers) -> str:
    """Return the key in a request's headers, in OpenAI's or Anthropic's form."""
    given = headers.get("authorization") or headers.get("x-api-key") or ""
    return given.removeprefix("Bearer ")


class HostCheck:
    """Refuses requests for a host that is not this server.

    A page can point its own name at this machine (DNS rebinding). Its requests are of the same
    origin for a browser, but their Host is that name.
    """

    def __init__(self, app: ASGIApp, listen: ListenParams) -> None:
        own, hosts = socket.gethostname(), [host for host, _ in list_addresses(listen)]
        self.app, self.any = app, "*" in listen.allowed_host
        self.names = {n.lower() for n in (*_HERE, own, *hosts, *listen.allowed_host)}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        address = scope.get("server") or ("", None)
        is_unix = address[1] is None  # a page cannot reach a unix socket
        if scope["type"] == "http" and not (self.any or is_unix):
            host = Headers(scope=scope).get("host", "")
            if host and not self._is_own(host):
                why = (
                    f"{host!r} is not a known host name of this server; add it with --allowed-host"
                )
                refusal = as_error(HTTPError("permission_error", why), scope["path"])
                await refusal(scope, receive, send)
                return
        await self.app(scope, receive, send)

    def _is_own(self, host: str) -> bool:
        name = _host_name(f"//{host}")
        return name in self.names or name.endswith(_PRIVATE) or _is_address(name)


def _host_name(url: str) -> str:
    """Return the host of a URL in small letters; "" without one."""
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def check_origin(request: Request, listen: ListenParams) -> None:
    """Let only known pages change the state of the server.

    Raises:
        HTTPError: The page is not from the server's address, not from this machine, and not in
            `--cors-origins`.
    """
    origin = request.headers.get("origin", "")
    own = urlsplit(origin).netloc == request.headers.get("host") if _host_name(origin) else False
    if origin and not own and not is_known(origin, listen):
        why = f"pages of {origin!r} may not change this server; add the origin with --cors-origins"
        raise HTTPError("permission_error", why)


def is_known(origin: str, listen: ListenParams) -> bool:
    """Return True if a page is of this machine or named by `--cors-origins`."""
    return is_local(origin) or origin in _list_origins(listen)


def _list_origins(listen: ListenParams) -> list[str]:
    return [one.strip() for one in listen.cors_origins.split(",")]


class Cors:
    """Middleware that decides which pages may read responses, and answers preflight requests."""

    def __init__(self, app: ASGIApp, listen: ListenParams) -> None:
        self.app, self.listen = app, listen

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        origin = Headers(scope=scope).get("origin", "")
        allowed = self._allow_origin(origin)

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                more = {"Server": "llama-py"}
                if allowed:
                    more |= {"Access-Control-Allow-Origin": allowed, "Vary": "Origin"}
                message["headers"] = [*message["headers"], *as_written(more)]
            await send(message)

        if scope["method"] == "OPTIONS":
            await self._answer(origin)(scope, receive, with_headers)
        else:
            await self.app(scope, receive, with_headers)

    def _allow_origin(self, origin: str) -> str:
        """Return the header's value; "" for no header."""
        listed = _list_origins(self.listen)
        if origin in listed or (is_local(origin) and {"*", "localhost"} & {*listed}):
            return origin
        return listed[0] if listed[0] != "localhost" else ""

    def _answer(self, origin: str) -> Response:
        p = self.listen
        trusted = p.cors_credentials and is_known(origin, p)
        # in a list of headers, * does not include Authorization
        headers = "*, Authorization" if p.cors_headers == "*" else p.cors_headers
        found = Response(b"", media_type="text/html")
        found.raw_headers += as_written(
            {
                "Access-Control-Allow-Credentials": "true" if trusted else "false",
                "Access-Control-Allow-Methods": p.cors_methods,
                "Access-Control-Allow-Headers": headers,
            }
        )
        return found


def is_manager(request: Request) -> bool:
    """Return True for a client with a key, on this machine, or of a unix socket.

    A proxy on this machine that names its client (`X-Forwarded-For`) is not the client.
    """
    if hasattr(request.state, "holder"):
        return True
    if any(name in request.headers for name in ("x-forwarded-for", "forwarded")):
        return False
    if request.client is None:
        return True
    try:
        return ipaddress.ip_address(request.client.host).is_loopback
    except ValueError:
        return not request.client.host


def is_local(origin: str) -> bool:
    """Return True if a page is of this machine."""
    return _host_name(origin) in _HERE
