"""A connection to one MCP server, which is opened a second time if the server ends."""

from __future__ import annotations

import asyncio
import concurrent.futures
from typing import Any

from ggml_py.machine.release import VERSION
from llama_py_tools.mcp.config import ServerConfig
from llama_py_tools.mcp.results import escape_line, result_text
from llama_py_tools.mcp.transport import MAX_MESSAGE, ErrorLines, connect

MAX_TOOLS = 128  # per server
MAX_PAGES = 20  # of a list of tools
MAX_REASON = 300
_LOST = ("Session terminated", "Session not found")  # errors of a URL whose server was restarted


class ServerConnection:
    """A connection to one server; all methods except `failure` run in the thread of an event loop.

    A call opens an ended connection again, once: a server that ends at each call would otherwise be
    started without end.

    Attributes:
        config: The server.
        ready: The server's tools, or the error of its last start.
    """

    def __init__(self, config: ServerConfig, seconds: float) -> None:
        """seconds: time limit of a start, and of a call"""
        self.config, self.seconds = config, seconds
        self.ready: concurrent.futures.Future[list[Any]] = concurrent.futures.Future()
        self._errors: ErrorLines | None = None
        self._task: asyncio.Task[Any] | None = None
        self._begun = asyncio.Event()  # `ready` has a result
        self._end = asyncio.Event()
        self._scope: Any = None  # of the whole connection
        self._client: Any = None
        self._is_restarted = self._is_closing = False

    async def run(self, previous: asyncio.Task[Any] | None = None) -> None:
        """Connect, list the tools, and keep the connection until it ends.

        previous: task of the ended connection, whose program may still run
        """
        import anyio

        self._task, self._end = asyncio.current_task(), asyncio.Event()
        with anyio.CancelScope() as self._scope:
            if previous is not None and not previous.done():
                await asyncio.wait([previous])
            await self._keep()

    async def _keep(self) -> None:
        from mcp import Client, Implementation

        ready, begun, errors = self.ready, self._begun, None
        try:
            if self._is_closing:
                raise ConnectionError("llama-py is stopping")
            errors = self._errors = None if self.config.url else ErrorLines(self.config)
            client = Client(
                connect(self.config, errors, self._end.set),
                read_timeout_seconds=self.seconds,
                client_info=Implementation(name="llama-py", version=VERSION),
                cache=None,
            )
            async with client:
                ready.set_result(await _list_tools(client))
                self._client = client
                begun.set()
                await self._end.wait()
        except asyncio.CancelledError:
            if not ready.done():
                ready.set_exception(ConnectionError("it was stopped during its start"))
            raise
        except BaseException as e:
            if not ready.done():
                ready.set_exception(first_error(e))
        finally:
            self._client = None
            begun.set()
            if errors is not None:
                errors.close()

    async def call(self, remote: str, arguments: dict[str, Any]) -> tuple[str, bool, str, str]:
        """Call a tool; return the fields of `ToolResult`. Errors become text."""
        import anyio

        notice = ""
        try:
            notice = self._restart()
            await self._wait_until_started()
            with anyio.fail_after(self.seconds):
                result = await self._client.call_tool(remote, arguments)
            return result_text(result), bool(result.is_error), "", notice
        except Exception as e:
            error = first_error(e)
            if str(error) in _LOST:
                self._end.set()
            why = self.failure(error)
            return why, True, why, notice

    def _restart(self) -> str:
        """Begin to start an ended server again; return a line for the user. "" if it has not ended.

        Raises:
            ConnectionError: It has ended a second time.
        """
        has_ended = self._client is None or self._end.is_set()
        if not has_ended or not self.ready.done():
            return ""
        if self._is_restarted:
            raise ConnectionError(
                "it has ended again, and is not started a third time; correct the server, then "
                "start llama-py again"
            )
        notice = self._describe_restart()
        self._is_restarted = True
        self.ready, self._begun = concurrent.futures.Future(), asyncio.Event()
        self._task = asyncio.ensure_future(self.run(self._task))
        return notice

    async def _wait_until_started(self) -> None:
        import anyio

        try:
            with anyio.fail_after(self.seconds):
                await self._begun.wait()
        except TimeoutError as e:
            if not self.ready.done():
                self.ready.set_exception(e)
            self.cancel()
            raise
        self.ready.result()

    def _describe_restart(self) -> str:
        done = "it was connected again" if self.config.url else "it was started again"
        return self._add_last_line(f"MCP server {self.config.name!r} had ended; {done}")

    def cancel(self) -> None:
        if self._scope is not None:
            self._scope.cancel()

    async def close(self) -> None:
        """End the connection, and wait for its end."""
        self._is_closing = True
        if self._task is None or self._task.done():
            return
        if self._client is None:
            self.cancel()
        self._end.set()
        await asyncio.wait([self._task])

    def failure(self, e: BaseException) -> str:
        """Return an error as one line without secrets."""
        text = f"MCP server {self.config.name!r}: {self._reason(e)}"
        return escape_line(text) if isinstance(e, TimeoutError) else self._add_last_line(text)

    def _add_last_line(self, text: str) -> str:
        last = self._errors.last if self._errors is not None else ""
        return escape_line(f"{text} (its last line: {last})" if last else text)

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


def first_error(e: BaseException) -> BaseException:
    """Return the first error of a group."""
    while inner := getattr(e, "exceptions", ()):
        e = inner[0]
    return e
