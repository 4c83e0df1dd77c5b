"""Routes of the HTTP server and their handlers (server.cpp)."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from llama_py_server.routes import leases, mcp, openapi, operations, page, tools, vertex
from llama_py_server.routes.leases import Handler
from llama_py_server.routes.ollama import greet
from llama_py_server.routes.operations import COMPUTE, ERRORS, GET, OLLAMA, POST, STREAMED, OfAll
from llama_py_server.routes.tools import NO_TOOLS, Toolbox
from llama_py_server.stream.replay import SavedStreams, begin_stream
from llama_py_server.wire.access import Cors, HostCheck, KeyCheck, check_origin
from llama_py_server.wire.addresses import ollama_address
from llama_py_server.wire.errors import HTTPError, as_http_error
from llama_py_server.wire.limits import BodyLimit, RequestLimit
from llama_py_server.wire.responses import GONE, as_error, as_ollama_error
from llama_py_server.wire.usage import Client, UsageLimit

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager

    from llama_py_server.models.model_pool import ModelPool
    from llama_py_server.params import ListenParams

log = logging.getLogger("llama_py")

Handle = Callable[[Request], Awaitable[Any]]

ALWAYS: dict[tuple[str, str], OfAll] = {**operations.ALWAYS, ("GET", "/openapi.json"): openapi.get}
PUBLIC = ("/health", "/v1/health", *page.PATHS)  # paths that need no key


def app(
    pool: ModelPool,
    listen: ListenParams,
    lifespan: Callable[[Starlette], AbstractAsyncContextManager[None]] | None = None,
    toolbox: Toolbox = NO_TOOLS,
) -> Starlette:
    """Return the whole application.

    Routes that need a model work once the pool is ready.

    toolbox: the tools of --mcp
    """
    prefix = listen.api_prefix
    handles = {}
    for every, write in ((ALWAYS, as_error), (OLLAMA, as_ollama_error)):
        for (method, path), of_all in every.items():
            checked = _check_origin(_handle_all(of_all, pool), listen, method, of_all)
            handles[method, path] = _report_errors(checked, write)
    for method, handlers in (("GET", GET), ("POST", POST)):
        for path, handler in handlers.items():
            if path == "/predict" and path in vertex.predict_paths():
                continue  # Vertex AI's path has the same name
            checked = _check_origin(_handle_one(handler, pool), listen, method, handler)
            handles[method, path] = _report_errors(checked, ERRORS.get(handler, as_error))
    model_tools = mcp.ModelTools(handles, pool)
    if listen.mcp_serve:
        for method, handle in mcp.handles(model_tools).items():
            checked = _check_origin(handle, listen, method, handle)
            handles[method, mcp.PATH] = _report_errors(checked)
    for (method, path), handle in tools.handles(toolbox, listen).items():
        handles[method, path] = _report_errors(handle)
    handles |= vertex.handles(handles, _report_errors)
    routes = [
        Route(prefix + path, handle, methods=[method]) for (method, path), handle in handles.items()
    ]
    files = {path: page.file(name) for path, name in page.PATHS.items()} if listen.ui else {}
    if listen.ollama:
        files["/"] = greet(ollama_address()[1], files.get("/"))
    routes += [Route(prefix + path, handle) for path, handle in files.items()]
    public = [prefix + path for path in (*PUBLIC, *vertex.health_paths())]
    prompts = [path for path, handler in POST.items() if handler in COMPUTE]
    prompts += [path for (_, path), handler in OLLAMA.items() if handler in COMPUTE]
    large = [prefix + path for path in (*prompts, *vertex.predict_paths())]
    clients: dict[str, Client] = {}
    body_limits = listen.body_limits()
    middleware = [
        Middleware(HostCheck, listen=listen),
        Middleware(Cors, listen=listen),
        Middleware(KeyCheck, keys=listen.keys(), public=public),
        Middleware(UsageLimit, listen=listen, clients=clients),
        Middleware(RequestLimit, most=listen.max_connections, public=public),
        Middleware(
            BodyLimit,
            limits=lambda: body_limits[pool.sees],
            seconds=listen.timeout_read,
            large=large,
            uploads=f"{prefix}/api/blobs/",
        ),
    ]
    failed = {HTTPException: _refuse, Exception: _fail}
    made = Starlette(
        routes=routes, middleware=middleware, exception_handlers=failed, lifespan=lifespan
    )
    made.state.has_tools, made.state.model_tools = toolbox.servers is not None, model_tools
    made.state.ui, made.state.streams, made.state.clients = listen.ui, SavedStreams(), clients
    made.state.listen = listen
    made.state.served = [
        openapi.ServedRoute(
            method,
            route.path,
            handler := _find_handler(method, route.path.removeprefix(prefix)),
            as_ollama_error if handler in OLLAMA.values() else ERRORS.get(handler, as_error),
            route.path in public,
        )
        for route in routes
        for method in sorted((route.methods or set()) - {"HEAD"})
    ]
    made.state.has_keys = bool(listen.keys())
    return made


def _find_handler(method: str, path: str) -> Any:
    """Return the handler of a path, or its operation if it has no entry in the tables."""
    if (method, path) in (known := ALWAYS | OLLAMA):
        return known[method, path]
    if path.startswith("/tools"):
        return operations.LIST_TOOLS if method == "GET" else operations.CALL_TOOL
    if path in vertex.predict_paths():
        return operations.PREDICTIONS
    if path in vertex.health_paths():
        return ALWAYS["GET", "/health"]
    if path == mcp.PATH:
        return operations.MCP if method == "POST" else operations.MCP_REFUSED
    if method == "GET" and path in page.PATHS:
        return operations.page_file(page.TYPES[page.PATHS[path]])
    return (GET if method == "GET" else POST)[path]


def _handle_all(handler: OfAll, pool: ModelPool) -> Handle:
    async def handle(request: Request) -> Any:
        pool.check_ready()
        return await handler(request, pool)

    return handle


def _handle_one(handler: Handler, pool: ModelPool) -> Handle:
    """Wrap a handler with the state of the request's model.

    The model is leased until the response is sent.
    """

    async def handle(request: Request) -> Any:
        pool.check_ready()
        saved = begin_stream(request, request.app.state.streams) if handler in STREAMED else None
        try:
            return await leases.respond(request, pool, handler)
        finally:
            if saved is not None and not saved.runs:
                request.app.state.streams.drop(saved)

    return handle


def _check_origin(handle: Handle, listen: ListenParams, method: str, handler: object) -> Handle:
    """Reject requests from pages of other origins if they may change the server."""
    if method == "GET" or handler in COMPUTE:
        return handle

    async def handle_checked(request: Request) -> Any:
        check_origin(request, listen)
        return await handle(request)

    return handle_checked


def _report_errors(handle: Handle, write: Callable[[HTTPError], Response] = as_error) -> Handle:
    """Wrap a handler so that errors become responses."""

    async def handle_errors(request: Request) -> Any:
        try:
            return await handle(request)
        except ClientDisconnect:
            return GONE
        except Exception as e:
            error = as_http_error(e)
            unexpected = error.kind == "server_error" and not isinstance(e, HTTPError)
            log.log(
                logging.ERROR if unexpected else logging.INFO,
                "%s: %d %s",
                request.url.path,
                error.code,
                error,
                exc_info=e if unexpected else None,
            )
            return (getattr(request.state, "write_error", None) or write)(error)

    return handle_errors


async def _refuse(request: Request, e: Exception) -> Response:
    """Return the response for an unknown path or a wrong method."""
    code = e.status_code if isinstance(e, HTTPException) else 404
    if code == 405:
        why = f"method {request.method} is not supported for this path"
        return as_error(HTTPError("not_found_error", why), request.url.path)
    return as_error(HTTPError("not_found_error", "File Not Found"), request.url.path)


async def _fail(request: Request, e: Exception) -> Response:
    return as_error(as_http_error(e), request.url.path)
