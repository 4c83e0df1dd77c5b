"""Connections to MCP servers, with limits that the `mcp` package does not have.

The package reads a line of a program, and the JSON of an HTTP response, of any length.
"""

from __future__ import annotations

import codecs
import logging
import os
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from llama_py_tools.mcp.config import ServerConfig
from llama_py_tools.mcp.results import escape_line

log = logging.getLogger("llama_py")

MAX_MESSAGE = 16 << 20  # characters of a program's message, bytes of an HTTP response
ENCODING = "llama_py_mcp_utf8"  # UTF-8 with limited lines
MAX_LINE = 500  # bytes of a line on stderr


class LimitedDecoder(codecs.IncrementalDecoder):
    """Decoder of UTF-8 that refuses a line above MAX_MESSAGE.

    Raises ConnectionError, which the package treats as the end of the connection.
    """

    def __init__(self, errors: str = "strict") -> None:
        super().__init__(errors)
        self.inner = codecs.getincrementaldecoder("utf-8")(errors)
        self.n_line = 0  # characters of the current line

    def decode(self, input: Any, final: bool = False) -> str:
        text = self.inner.decode(input, final)
        end = text.rfind("\n")
        self.n_line = len(text) - end - 1 if end >= 0 else self.n_line + len(text)
        if self.n_line > MAX_MESSAGE:
            raise ConnectionError(f"a message has more than {MAX_MESSAGE >> 20} MiB")
        return text


def _find_codec(name: str) -> codecs.CodecInfo | None:
    if name != ENCODING:
        return None
    utf8 = codecs.lookup("utf-8")
    return codecs.CodecInfo(
        utf8.encode, utf8.decode, incrementaldecoder=LimitedDecoder, name=ENCODING
    )


codecs.register(_find_codec)


class ErrorLines:
    """Receiver of a program's stderr: logs its lines with --verbose, and stores the last one.

    file  stderr for the program; `close` it here after the program has started
    """

    def __init__(self, config: ServerConfig) -> None:
        self.config, self.last = config, ""
        read, write = os.pipe()
        self.file = os.fdopen(write, "w")
        threading.Thread(target=self._read, args=(read,), daemon=True, name="mcp-stderr").start()

    def close(self) -> None:
        self.file.close()

    def _read(self, descriptor: int) -> None:
        """Read lines until every process has closed the pipe; cut long lines."""
        with os.fdopen(descriptor, "rb", buffering=0) as pipe:
            rest = b""
            while data := pipe.read(4096):
                *lines, rest = (rest + data).split(b"\n")
                rest = rest[:MAX_LINE]
                for line in lines:
                    self._note(line)
            self._note(rest)

    def _note(self, line: bytes) -> None:
        text = self.config.hide(line[:MAX_LINE].decode(errors="replace"))
        if text.strip():
            self.last = escape_line(text.strip())
            log.debug("MCP server %s: %s", self.config.name, self.last)


class WatchedStream:
    """Stream of a server's messages that calls a function when the server has closed it."""

    def __init__(self, inner: Any, at_end: Callable[[], None]) -> None:
        self.inner, self.at_end = inner, at_end

    async def receive(self) -> Any:
        import anyio

        try:
            return await self.inner.receive()
        except (anyio.EndOfStream, anyio.ClosedResourceError):
            self.at_end()
            raise

    def __aiter__(self) -> WatchedStream:
        return self

    async def __anext__(self) -> Any:
        import anyio

        try:
            return await self.receive()
        except anyio.EndOfStream:
            raise StopAsyncIteration from None

    async def aclose(self) -> None:
        await self.inner.aclose()

    async def __aenter__(self) -> WatchedStream:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


@asynccontextmanager
async def connect(
    config: ServerConfig, errors: ErrorLines | None, at_end: Callable[[], None]
) -> AsyncIterator[Any]:
    """Connect to a server; yields the streams that `mcp.Client` takes.

    errors: receiver of stderr, for a program
    at_end: called when the server has closed the connection
    """
    async with AsyncExitStack() as stack:
        if config.url:
            read, write = await stack.enter_async_context(await _http(config, stack))
            yield WatchedStream(read, at_end), write
            return
        from mcp import StdioServerParameters, stdio_client

        how = StdioServerParameters(
            command=config.command,
            args=list(config.args),
            env=dict(config.env),
            cwd=config.cwd,
            encoding=ENCODING,
            encoding_error_handler="replace",
        )
        if errors is None:
            raise ValueError("a program needs a receiver of its stderr")
        try:
            read, write = await stack.enter_async_context(stdio_client(how, errors.file))
        finally:
            errors.close()
        yield WatchedStream(read, at_end), write


async def _http(config: ServerConfig, stack: AsyncExitStack) -> Any:
    import httpx2
    from mcp.client.streamable_http import streamable_http_client

    class LimitedBody(httpx2.AsyncByteStream):  # type: ignore[misc]  # Any without the package
        """Body of a response; an error after MAX_MESSAGE bytes."""

        def __init__(self, inner: Any) -> None:
            self.inner = inner

        async def __aiter__(self) -> AsyncIterator[bytes]:
            n = 0
            async for data in self.inner:
                n += len(data)
                if n > MAX_MESSAGE:
                    raise httpx2.ReadError("the response of the server is too large")
                yield data

        async def aclose(self) -> None:
            await self.inner.aclose()

    async def limit(response: Any) -> None:
        kind = response.headers.get("content-type", "")
        if response.headers.get("content-encoding", "identity") != "identity":
            raise httpx2.DecodingError("the response is compressed, without a request for that")
        if not kind.startswith("text/event-stream"):  # a stream has no limit, its events do
            response.stream = LimitedBody(response.stream)

    client = httpx2.AsyncClient(
        headers={**config.headers, "Accept-Encoding": "identity"},
        timeout=httpx2.Timeout(30.0, read=300.0),
        event_hooks={"response": [limit]},
    )
    await stack.enter_async_context(client)
    return streamable_http_client(config.url, http_client=client, max_sse_event_size=MAX_MESSAGE)
