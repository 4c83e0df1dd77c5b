"""Connections to MCP servers: the tools of all servers, and their calls.

An event loop in a separate thread runs all connections. A terminal and a server can both wait for a
call, and a large message of one server delays no other work.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import json
import logging
import re
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ggml_py.errors import ModelError
from ggml_py.machine.extras import install_hint
from llama_py_tools.mcp.config import ServerConfig
from llama_py_tools.mcp.connection import MAX_TOOLS, ServerConnection
from llama_py_tools.mcp.results import clean, escape_line

log = logging.getLogger("llama_py")

MAX_SCHEMA = 64 << 10  # characters of the schema of a tool's arguments
MAX_DESCRIPTION = 4096
MAX_NAME = 64
GRACE = 5.0  # seconds for the thread to report its own time limit
CLOSING = 10.0  # seconds until a program is abandoned at the end; the package kills it after 6
TICK = 0.2  # seconds; on Windows Ctrl-C interrupts no longer wait
_LIBRARIES = ("mcp", "httpx2", "httpcore2")  # their logs may have URLs and messages


@dataclass(frozen=True)
class McpTool:
    """A tool of a server.

    Attributes:
        name: Unique name, which the model uses.
        server: Name of the server.
        remote: The server's name of the tool.
        description: Text for the model.
        parameters: JSON schema of the arguments.
    """

    name: str
    server: str
    remote: str
    description: str
    parameters: Mapping[str, Any]

    def describe(self) -> dict[str, Any]:
        """Return the tool in the form of the OpenAI API."""
        function = {
            "name": self.name,
            "description": self.description,
            "parameters": dict(self.parameters),
        }
        return {"type": "function", "function": function}


@dataclass(frozen=True)
class ToolResult:
    """The text of a call's result.

    Attributes:
        text: The result, or the error, for the model.
        is_error: The call failed.
        failure: One line for the user if the server failed.
        notice: One line for the user if the server was started again for this call.
    """

    text: str
    is_error: bool = False
    failure: str = ""
    notice: str = ""


class ToolServers:
    """MCP servers, their tools, and calls.

    Attributes:
        tools: All tools, by their unique names.
        failures: One line for each server that did not start, and for each refused tool.
    """

    def __init__(self, configs: Sequence[ServerConfig], seconds: float) -> None:
        """Start all servers and list their tools; `seconds` limits this and each call.

        Raises:
            ModelError: The `mcp` package is not installed.
        """
        import_mcp("--mcp")
        self.seconds = seconds
        self.tools: dict[str, McpTool] = {}
        self.failures: list[str] = []
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, daemon=True, name="mcp")
        self._thread.start()
        self._connections = {one.name: ServerConnection(one, seconds) for one in configs}
        try:
            for connection in self._connections.values():
                self._submit(connection.run())
            self._wait_for_tools()
        except BaseException:
            self.close()
            raise

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()

    def _submit(self, doing: Any) -> concurrent.futures.Future[Any]:
        return asyncio.run_coroutine_threadsafe(doing, self._loop)

    def _wait_for_tools(self) -> None:
        end = time.monotonic() + self.seconds
        found: list[tuple[str, Any]] = []
        for connection in self._connections.values():
            name = connection.config.name
            try:
                tools = _wait(connection.ready, end - time.monotonic())
                found += [(name, tool) for tool in tools[:MAX_TOOLS]]
                if len(tools) > MAX_TOOLS:
                    self.failures.append(f"MCP server {name!r}: only {MAX_TOOLS} tools are used")
            except Exception as e:
                self._loop.call_soon_threadsafe(connection.cancel)
                self.failures.append(connection.failure(e))
        self._name_tools(found)

    def _name_tools(self, found: Sequence[tuple[str, Any]]) -> None:
        """Give each tool a unique name: its own one, or SERVER_TOOL if several have it."""
        small = [one for one in found if len(json.dumps(one[1].input_schema)) <= MAX_SCHEMA]
        plain = [_identifier(tool.name) for _, tool in small]
        for (server, tool), name in zip(small, plain, strict=True):
            if plain.count(name) > 1:
                name = _identifier(f"{server}_{tool.name}")
            if name not in self.tools and name.strip("_"):
                text = clean(tool.description or "")[:MAX_DESCRIPTION]
                self.tools[name] = McpTool(name, server, tool.name, text, tool.input_schema)
        used = {(one.server, one.remote) for one in self.tools.values()}
        for server, tool in found:
            if (server, tool.name) not in used:
                shown = escape_line(tool.name)[:MAX_NAME]
                why = "its name or schema cannot be used"
                self.failures.append(f"MCP server {server!r}: tool {shown!r} is ignored: {why}")

    def call(self, name: str, arguments: Mapping[str, Any]) -> ToolResult:
        """Call a tool and wait for its result; Ctrl-C cancels the call."""
        future = self.submit(name, arguments)
        try:  # the server may have to start again
            return ToolResult(*_wait(future, 2 * self.seconds + GRACE))
        except TimeoutError as e:
            future.cancel()
            why = self._connections[self.tools[name].server].failure(e)
            return ToolResult(why, True, why)
        except BaseException:
            future.cancel()
            raise

    def submit(
        self, name: str, arguments: Mapping[str, Any]
    ) -> concurrent.futures.Future[tuple[str, bool, str, str]]:
        """Start a call; the future has the fields of `ToolResult`. Raises KeyError for an unknown
        tool."""
        tool = self.tools[name]
        return self._submit(self._connections[tool.server].call(tool.remote, dict(arguments)))

    def hide(self, name: str, text: str) -> str:
        """Replace the secrets of a tool's server in a text."""
        return self._connections[self.tools[name].server].config.hide(text)

    def close(self) -> None:
        """End all servers; programs get CLOSING seconds."""
        if not self._thread.is_alive():
            return
        done = self._submit(self._close())
        try:
            _wait(done, CLOSING)
        except (Exception, KeyboardInterrupt):
            log.debug("MCP servers did not end in time")
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(1.0)
        if not self._thread.is_alive():
            self._loop.close()

    async def _close(self) -> None:
        await asyncio.gather(*(one.close() for one in self._connections.values()))

    def __enter__(self) -> ToolServers:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def import_mcp(flag: str) -> None:
    """Import the package for an option, and turn its logs off. ModelError if it is missing."""
    try:
        import mcp  # noqa: F401
    except ModuleNotFoundError as e:
        raise ModelError(f"{flag} needs {e.name}: {install_hint('mcp')}") from None
    for name in _LIBRARIES:
        logging.getLogger(name).setLevel(logging.CRITICAL + 1)


def _identifier(name: str) -> str:
    """Return a tool's name with the characters that chat templates and APIs accept."""
    return re.sub(r"[^A-Za-z0-9_-]", "_", name)[:MAX_NAME]


def _wait(future: concurrent.futures.Future[Any], seconds: float) -> Any:
    """Return a future's result; TimeoutError after a time."""
    end = time.monotonic() + seconds
    while not future.done():
        left = end - time.monotonic()
        if left <= 0:
            raise TimeoutError
        concurrent.futures.wait([future], min(left, TICK))
    return future.result()
