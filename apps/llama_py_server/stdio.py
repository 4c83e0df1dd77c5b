"""llama-py mcp: models as an MCP server over stdin and stdout, for clients that start a program.

llama-py-server --mcp-serve offers the same tools over HTTP. stdout has messages of the protocol
only, and the program ends with stdin.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import sys
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ggml_py.errors import ModelError
from llama_py.params import GenerateParams, ModelParams, SamplingParams
from llama_py_server.command import CONTROL, Loader, explain_missing, open_pool
from llama_py_server.params import (
    TYPED,
    ListenParams,
    ModelsParams,
    ServedParams,
    ServerParams,
    TalkParams,
)
from llama_py_tools.command.cpus import CpuParams
from llama_py_tools.command.options import OptionParser, read
from llama_py_tools.command.params import (
    CommonParams,
    DraftFileParams,
    FileParams,
    FormParams,
    SteeringParams,
)
from llama_py_tools.models import session

if TYPE_CHECKING:
    from starlette.applications import Starlette
    from starlette.requests import Request

NAME = "llama-py mcp"
TICK = 0.05  # seconds between checks of a model that is being loaded
CHUNK = 1 << 16  # bytes of stdin
MAX_WAITING = 64  # lines of stdin that wait for the event loop
OF_HTTP = (  # fields of ServerParams
    "tags",
    "reranking",
    "slots",
    "props",
    "metrics",
    "slot_save_path",
    "spm_infill",
    "media_path",
    "media_urls",
)

COMMON = (
    "-m -hf --models-dir -c -n -np -rea --embeddings --temp --top-k --top-p --min-p",
    "-t -fa -ctk -ctv -dev -ngl -ncmoe --lora -md --spec-type --log-file -v",
)
EPILOG = """example of a client's configuration:
  {"mcpServers": {"llama-py": {"command": "llama-py", "args": ["mcp", "-m", "/models/model.gguf"]}}}
"""


def parser() -> OptionParser:
    p = OptionParser(
        "llama-py-mcp",
        COMMON,
        usage="%(prog)s [-m FILE] [options]",
        description=__doc__,
        epilog=EPILOG,
    )
    p.add(CommonParams, without=("log_jsonl",))  # stdout is for the protocol
    p.add(ModelsParams, without=("models_autoload", "models_manage"))
    p.add(FileParams, without=("model",))
    p.add(ServerParams, without=OF_HTTP)
    p.add(TalkParams, without=TYPED)
    p.add(ServedParams, without=("check",))
    p.add(GenerateParams, SamplingParams, DraftFileParams)
    p.add(CpuParams, FormParams, ModelParams)
    p.add(SteeringParams, without=CONTROL)
    return p


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code (docs/commands.md)."""
    args = parser().parse_args(argv)
    args.mmproj_auto = False  # messages are text
    args.given = [*(sys.argv[1:] if argv is None else argv), "--no-mmproj"]
    return session.run(_command, args)


def _command(args: argparse.Namespace) -> int:
    from llama_py_tools.mcp.connection import first_error
    from llama_py_tools.mcp.servers import import_mcp

    import_mcp(NAME)
    with explain_missing(NAME):
        from llama_py_server.wire import work
    if sys.stdin is None or sys.stdout is None:
        raise ModelError(f"{NAME} needs stdin and stdout; let an MCP client start it")
    if sys.stdin.isatty():
        session.tell("waiting for an MCP client; Ctrl-D ends")
    try:
        loader = asyncio.run(_serve(args))
    except Exception as e:
        raise first_error(e) from None
    if loader.is_busy or work.is_busy():
        session.exit_now(0)
    return 0


async def _serve(args: argparse.Namespace) -> Loader:
    """Serve until the end of stdin, or until the model cannot be loaded."""
    from mcp.server.stdio import stdio_server

    from llama_py_server.app import app

    async with stdio_server(_InputLines(sys.stdin.fileno())) as streams:
        with contextlib.redirect_stdout(sys.stderr):
            pool, loader = open_pool(args)
            made = app(pool, read(args, ListenParams), loader.lifespan)

            async def wait_until_ready() -> None:
                while not pool.ready:
                    await asyncio.sleep(TICK)

            async with loader.lifespan(made):
                server = made.state.model_tools.build_server(local_request(made), wait_until_ready)
                serving = server.run(*streams, server.create_initialization_options())
                try:
                    await _unless_failed(serving, loader)
                finally:
                    loader.hurry.set()  # clients kill a program that does not end within seconds
    return loader


async def _unless_failed(serving: Any, loader: Loader) -> None:
    """Await a server; if the model cannot be loaded, cancel it and raise the error."""
    from llama_py_server.wire.clients import cancel_task

    task = asyncio.ensure_future(serving)
    try:
        while not (task.done() or loader.pool.ready or loader.failed.is_set()):
            await asyncio.wait({task}, timeout=TICK)
        if loader.error is not None:
            raise loader.error
        await task
    finally:
        await cancel_task(task)


def local_request(made: Starlette) -> Request:
    """Return the request that calls of tools repeat, of a client that never disconnects."""
    from starlette.requests import Request

    async def receive() -> Any:
        await asyncio.Event().wait()

    scope: dict[str, Any] = {
        "type": "http",
        "method": "POST",
        "path": "/mcp",
        "query_string": b"",
        "headers": [],
        "client": None,
        "app": made,
        "state": {},
    }
    return Request(scope, receive)


class _InputLines:
    """Reader of stdin, as an iterator over its lines.

    A daemon thread reads them: a read in a thread of the event loop would delay the end of this
    process until the client sends another line.
    """

    def __init__(self, descriptor: int) -> None:
        self._loop = asyncio.get_running_loop()
        self._lines: asyncio.Queue[str | OSError | None] = asyncio.Queue()
        self._free = threading.Semaphore(MAX_WAITING)
        reading = threading.Thread(target=self._read, args=(descriptor,), daemon=True)
        reading.start()

    def __aiter__(self) -> _InputLines:
        return self

    async def __anext__(self) -> str:
        line = await self._lines.get()
        self._free.release()
        if isinstance(line, OSError):
            raise line
        if line is None:
            raise StopAsyncIteration
        return line

    def _read(self, descriptor: int) -> None:
        from llama_py_tools.mcp.transport import LimitedDecoder

        decoder, rest = LimitedDecoder("replace"), ""
        try:
            while data := os.read(descriptor, CHUNK):
                *lines, rest = (rest + decoder.decode(data)).split("\n")
                for line in lines:
                    self._put(line)
            if rest.strip():
                self._put(rest)
            self._put(None)
        except OSError as e:
            self._put(e)

    def _put(self, line: str | OSError | None) -> None:
        self._free.acquire()
        with contextlib.suppress(RuntimeError):  # the event loop has ended
            self._loop.call_soon_threadsafe(self._lines.put_nowait, line)
