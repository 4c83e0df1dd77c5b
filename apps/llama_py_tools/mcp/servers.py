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
from ggml_py.machine.release import VERSION
from llama_py_tools.mcp.config import ServerConfig
from llama_py_tools.mcp.results import clean, escape_line, result_text
from llama_py_tools.mcp.transport import MAX_MESSAGE, ErrorLines, connect

log = logging.getLogger("llama_py")

MAX_TOOLS = 128  # per server
MAX_PAGES = 20  # of a list of tools
MAX_SCHEMA = 64 << 10  # characters of the schema of a tool's arguments
MAX_DESCRIPTION = 4096
MAX_NAME = 64
MAX_REASON = 300
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
    """The text of a call's result. `failure`: one line for the user if the server failed."""

    text: str
    is_error: bool = False
    failure: str = ""


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
        self._connections = {one.name: _Connection(one, seconds) for one in configs}
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
        try:
            return ToolResult(*_wait(future, self.seconds + GRACE))
        except TimeoutError as e:
            future.cancel()
            why = self._connections[self.tools[name].server].failure(e)
            return ToolResult(why, True, why)
        except BaseException:
            future.cancel()
            raise

    def submit(
        self, name: str, arguments: Mapping[str, Any]
    ) -> concurrent.futures.Future[tuple[str, bool, str]]:
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


class _Connection:
    """A connection to one server; all methods except `failure` run in the loop's thread.

    ready  the server's tools, or the error of its start
    """

    def __init__(self, config: ServerConfig, seconds: float) -> None:
        self.config, self.seconds = config, seconds
        self.ready: concurrent.futures.Future[list[Any]] = concurrent.futures.Future()
        self._errors = None if config.url else ErrorLines(config)
        self._task: asyncio.Task[Any] | None = None
        self._end: Any = None
        self._scope: Any = None  # of the whole connection
        self._client: Any = None

    async def run(self) -> None:
        """Connect, list the tools, and keep the connection until `close`."""
        import anyio

        self._task, self._end = asyncio.current_task(), asyncio.Event()
        with anyio.CancelScope() as self._scope:
            await self._keep()

    async def _keep(self) -> None:
        from mcp import Client, Implementation

        try:
            client = Client(
                connect(self.config, self._errors),
                read_timeout_seconds=self.seconds,
                client_info=Implementation(name="llama-py", version=VERSION),
                cache=None,
            )
            async with client:
                self.ready.set_result(await _list_tools(client))
                self._client = client
                await self._end.wait()
        except BaseException as e:
            if not self.ready.done():
                self.ready.set_exception(_first_error(e))
            if isinstance(e, asyncio.CancelledError):
                raise
        finally:
            self._client = None
            if self._errors is not None:
                self._errors.close()

    async def call(self, remote: str, arguments: dict[str, Any]) -> tuple[str, bool, str]:
        """Call a tool; return the fields of `ToolResult`. Errors become text."""
        import anyio

        try:
            if self._client is None:
                raise ConnectionError("the server has ended")
            with anyio.fail_after(self.seconds):
                result = await self._client.call_tool(remote, arguments)
            return result_text(result), bool(result.is_error), ""
        except Exception as e:
            why = self.failure(_first_error(e))
            return why, True, why

    def cancel(self) -> None:
        if self._scope is not None:
            self._scope.cancel()

    async def close(self) -> None:
        """End the connection, and wait for its end."""
        if self._task is None or self._task.done():
            return
        if self._client is None:
            self.cancel()
        self._end.set()
        await asyncio.wait([self._task])

    def failure(self, e: BaseException) -> str:
        """Return an error as one line without secrets."""
        text = f"MCP server {self.config.name!r}: {self._reason(e)}"
        last = self._errors.last if self._errors is not None else ""
        if last and not isinstance(e, TimeoutError):
            text += f" (its last line: {last})"
        return escape_line(text)

    def _reason(self, e: BaseException) -> str:
        if isinstance(e, TimeoutError):
            return f"no reply within {self.seconds:g} s; --mcp-timeout sets the limit"
        if isinstance(e, FileNotFoundError):
            return "its command does not exist; check the path"
        if isinstance(e, OSError) and e.strerror:
            return e.strerror
        text = " ".join((str(e) or type(e).__name__).split())
        if text == "Connection closed":
            text = f"it has ended, or sent more than {MAX_MESSAGE >> 20} MiB"
        if type(e).__name__ == "ValidationError":
            text = "its reply does not have the form of the protocol"
        return self.config.hide(text)[:MAX_REASON]


async def _list_tools(client: Any) -> list[Any]:
    if client.server_capabilities.tools is None:
        return []
    found: list[Any] = []
    cursor = None
    for _ in range(MAX_PAGES):
        page = await client.list_tools(cursor=cursor)
        found += page.tools
        cursor = page.next_cursor
        if cursor is None or len(found) > MAX_TOOLS:
            break
    return found


def import_mcp(flag: str) -> None:
    """Import the package for an option, and turn its logs off. ModelError if it is missing."""
    try:
        import mcp  # noqa: F401
    except ModuleNotFoundError as e:
        raise ModelError(f"{flag} needs {e.name}: {install_hint('mcp')}") from None
    for name in _LIBRARIES:
        logging.getLogger(name).setLevel(logging.CRITICAL + 1)


def _first_error(e: BaseException) -> BaseException:
    """Return the first error of a group."""
    while inner := getattr(e, "exceptions", ()):
        e = inner[0]
    return e


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
