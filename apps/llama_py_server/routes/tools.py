"""Routes of tools for the page, with --mcp: the page runs the loop of calls.

GET /tools                                          tools in the form of the OpenAI API
POST /tools/call {"name": ..., "arguments": {...}}  result of a call, and `notice` for the user if
                                                    its server was started again

Tools may do anything that this machine permits. Clients need a key or must be on this machine;
their pages must be of this machine or in --cors-origins.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.responses import Response

from llama_py_server.routes.inner import Handle
from llama_py_server.wire import work
from llama_py_server.wire.access import check_origin, is_manager
from llama_py_server.wire.body import read_object
from llama_py_server.wire.clients import unless_gone
from llama_py_server.wire.errors import HTTPError, invalid
from llama_py_server.wire.responses import GONE, as_json, as_long_json

if TYPE_CHECKING:
    from llama_py_server.params import ListenParams
    from llama_py_tools.mcp.params import McpParams
    from llama_py_tools.mcp.servers import ToolServers

log = logging.getLogger("llama_py")

MAX_CALLS = 8  # at the same time


@dataclass
class Toolbox:
    """Tools of MCP servers for the page.

    Attributes:
        servers: The servers; None without --mcp.
        steps: Maximum number of responses with calls per message.
        running: Calls that are running.
    """

    servers: ToolServers | None = None
    steps: int = 10
    running: set[object] = field(default_factory=set)

    def close(self) -> None:
        if self.servers is not None:
            self.servers.close()


NO_TOOLS = Toolbox()


def open_toolbox(params: McpParams) -> Toolbox:
    """Start the servers of --mcp; each server that fails is one line of the log."""
    if not params.mcp:
        return NO_TOOLS
    from llama_py_tools.mcp.config import read_servers
    from llama_py_tools.mcp.servers import ToolServers

    servers = ToolServers(read_servers(params.mcp), params.mcp_timeout)
    for failure in servers.failures:
        log.error("%s", failure)
    log.info("%d tools: %s", len(servers.tools), ", ".join(servers.tools))
    return Toolbox(servers, params.mcp_steps)


def handles(toolbox: Toolbox, listen: ListenParams) -> dict[tuple[str, str], Handle]:
    """Return the handlers of the routes; empty without --mcp."""
    servers = toolbox.servers
    if servers is None:
        return {}

    async def list_tools(request: Request) -> Response:
        _check_client(request, listen)
        tools = [tool.describe() for tool in servers.tools.values()]
        return as_json({"tools": tools, "steps": toolbox.steps})

    async def call(request: Request) -> Response:
        _check_client(request, listen)
        body = await read_object(request)
        name, arguments = body.get("name"), body.get("arguments", {})
        if not isinstance(name, str) or name not in servers.tools:
            raise invalid("'name' must be the name of a tool; GET /tools lists them")
        if not isinstance(arguments, dict):
            raise invalid("'arguments' must be an object")
        if len(toolbox.running) >= MAX_CALLS:
            raise HTTPError("unavailable_error", f"{MAX_CALLS} calls are running; try again later")
        call = object()
        toolbox.running.add(call)
        try:
            future = asyncio.wrap_future(servers.submit(name, arguments))
            found = await unless_gone(request, future)
        finally:
            toolbox.running.discard(call)
        if found is None:
            return GONE
        text, is_error, failure, notice = found
        if notice:
            log.warning("%s", notice)
        if failure:
            log.error("%s", failure)
        result = {"text": servers.hide(name, text), "is_error": is_error}
        if notice:
            result["notice"] = notice
        return await work.run(work.Work.WRITE, as_long_json, result)

    return {("GET", "/tools"): list_tools, ("POST", "/tools/call"): call}


def _check_client(request: Request, listen: ListenParams) -> None:
    """Raise HTTPError unless the client may call tools."""
    check_origin(request, listen)
    if not is_manager(request):
        raise HTTPError(
            "permission_error", "only clients of this machine and clients with a key may use tools"
        )
