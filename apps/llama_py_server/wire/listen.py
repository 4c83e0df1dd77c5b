"""Sockets, TLS, and a graceful shutdown."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType

import uvicorn
from starlette.applications import Starlette
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ggml_py.errors import ModelError
from llama_py_server.params import ListenParams
from llama_py_server.wire.addresses import list_addresses
from llama_py_server.wire.connections import Connection, LoopErrors, limit_connections
from llama_py_server.wire.errors import HTTPError
from llama_py_server.wire.pace import Pace
from llama_py_server.wire.responses import as_error
from llama_py_tools.command.logs import tell

log = logging.getLogger("llama_py")

BACKLOG = 2048
SWITCH = 0.0005  # seconds of Python code after which a thread yields to another
CUT = 0.2  # seconds for sending responses that are cut
SIGNALS = (signal.SIGINT, signal.SIGTERM)


def serve(
    app: Starlette,
    listen: ListenParams,
    failed: threading.Event,
    hurry: threading.Event,
    ending: Callable[[], None],
    cut: Callable[[], None] = lambda: None,
) -> int:
    """Serve until a signal, or until `failed` is set. A second Ctrl-C sets `hurry`. Return 0, or
    130 after Ctrl-C.

    ending  called at the start of shutdown: endless streams must end
    cut     called after --timeout-stop: responses must end immediately

    Raises OSError for an unavailable address, ModelError for a bad key or certificate.
    """
    sys.setswitchinterval(SWITCH)
    most = limit_connections(listen.max_connections)
    if most < listen.max_connections:
        log.warning(
            "--max-connections %d is reduced to %d, because the limit of open files is too low; "
            "raise it (ulimit -n)",
            listen.max_connections,
            most,
        )
    config = uvicorn.Config(
        Stoppable(app),
        http=type("Limited", (Connection,), {"most": most, "pace": Pace()}),
        ws="none",
        log_config=None,
        access_log=False,
        lifespan="on",
        server_header=False,
        backlog=BACKLOG,
        timeout_keep_alive=listen.timeout_read,
        ssl_keyfile=listen.ssl_key_file or None,
        ssl_certfile=listen.ssl_cert_file or None,
    )
    try:
        config.load()
    except OSError as e:  # includes ssl.SSLError
        raise ModelError(f"TLS with {listen.ssl_cert_file}: {e}") from None
    with contextlib.ExitStack() as stack:
        addresses = list_addresses(listen)
        several = len(addresses) > 1
        sockets = [stack.enter_context(_bind(host, port, several)) for host, port in addresses]
        server = Server(config, hurry, ending, cut)
        server.seconds = listen.timeout_stop
        with _signals(server):
            for (host, _), one in zip(addresses, sockets, strict=True):
                tell(f"listening on {_show_address(host, one, listen)}")
            asyncio.run(_serve(server, sockets, failed))
    return 130 if server.had_ctrl_c else 0


class Stoppable:
    """An application that ends cancelled requests with an error instead of a traceback."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        begun = False

        async def note_start(message: Message) -> None:
            nonlocal begun
            begun = True
            await send(message)

        try:
            await self.app(scope, receive, note_start)
        except asyncio.CancelledError:
            if scope["type"] != "http":
                raise
            why = "the server is stopping"
            log.info("%s: %s", scope["path"], why)
            if not begun:
                error = HTTPError("unavailable_error", why)
                await as_error(error, scope["path"])(scope, receive, send)


class Server(uvicorn.Server):
    """Server that a signal ends normally, without raising it again; a second one sets `hurry`."""

    had_ctrl_c = False
    seconds = 0.0  # seconds until responses are cut
    signaled = 0.0  # time of the signal, which uvicorn notices up to 0.1 s later

    def __init__(
        self,
        config: uvicorn.Config,
        hurry: threading.Event,
        ending: Callable[[], None],
        cut: Callable[[], None],
    ) -> None:
        super().__init__(config)
        self.hurry, self.ending, self.cut = hurry, ending, cut

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self.had_ctrl_c |= sig == signal.SIGINT
        self.signaled = self.signaled or time.monotonic()
        super().handle_exit(sig, frame)
        if self.force_exit:
            self.hurry.set()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self.ending()
        passed = time.monotonic() - self.signaled if self.signaled else 0.0
        left = max(self.seconds - passed, 0.0)
        self.config.timeout_graceful_shutdown = left + CUT  # type: ignore[assignment]
        asyncio.get_running_loop().call_later(left, self.cut)
        await super().shutdown(sockets)
        if self.force_exit:  # `super().shutdown` then skips it
            await self.lifespan.shutdown()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield  # this process keeps its handlers: see _signals


@contextlib.contextmanager
def _signals(server: Server) -> Iterator[None]:
    """Let the server handle signals until the end of its event loop."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {sig: signal.signal(sig, server.handle_exit) for sig in SIGNALS}
    try:
        yield
    finally:
        for sig, handler in before.items():
            signal.signal(sig, handler)


async def _serve(server: Server, sockets: list[socket.socket], failed: threading.Event) -> None:
    asyncio.get_running_loop().set_exception_handler(LoopErrors())

    async def watch() -> None:
        while not server.should_exit:
            await asyncio.sleep(0.1)
            server.should_exit = server.should_exit or failed.is_set()

    watching = asyncio.ensure_future(watch())
    try:
        await server.serve(sockets=sockets)
    finally:
        watching.cancel()


@contextlib.contextmanager
def _bind(host: str, port: int, several: bool) -> Iterator[socket.socket]:
    """Yield a listening socket; the file of a unix socket is removed afterwards. several: the
    server has other sockets"""
    if host.endswith(".sock"):
        path = Path(host)
        if path.is_socket():
            path.unlink()
        found = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        found.bind(host)
        try:
            with found:
                yield found
        finally:
            path.unlink(missing_ok=True)
        return
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio sends small writes at once (TCP_NODELAY) only on sockets with this explicit protocol.
    with socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP) as found:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6 and several:
            found.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        try:
            found.bind((host, port))
        except OSError as e:
            raise OSError(e.errno, e.strerror, f"{host}:{port}") from None
        yield found


def _show_address(host: str, one: socket.socket, listen: ListenParams) -> str:
    if host.endswith(".sock"):
        return f"unix:{host}"
    scheme = "https" if listen.ssl_key_file else "http"
    name = f"[{host}]" if ":" in host else host
    return f"{scheme}://{name}:{one.getsockname()[1]}{listen.api_prefix}"
