"""Idle and slow connections, and limits of requests and of their bodies."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest
import uvicorn

from llama_py_server.wire import connections
from llama_py_server.wire.connections import MORE, Connection, LoopErrors, limit_connections
from llama_py_server.wire.errors import HTTPError
from llama_py_server.wire.limits import BodyLimit, RequestLimit
from llama_py_server.wire.listen import _bind
from llama_py_server.wire.usage import CLIENT, Client
from llama_py_server.wire.work import ANSWERS
from tests.server.served import WAIT
from tests.support.limits import has_ipv6

Opened = tuple[asyncio.StreamReader, asyncio.StreamWriter]
GET = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"


@asynccontextmanager
async def serving(most: int, idle: int, answers: asyncio.Event, **more: Any) -> Any:
    """Serve 204 once `answers` is set; gives a function that opens connections."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await answers.wait()
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body"})

    kind: Any = type("Limited", (Connection,), {"most": most, **more})
    config = uvicorn.Config(
        app, port=0, http=kind, lifespan="off", timeout_keep_alive=idle, log_config=None
    )
    config.load()
    server = uvicorn.Server(config)
    server.lifespan = config.lifespan_class(config)
    await server.startup()
    port = server.servers[0].sockets[0].getsockname()[1]
    async with AsyncExitStack() as stack:

        async def connect(data: bytes) -> Opened:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            stack.callback(writer.close)
            writer.write(data)
            return reader, writer

        yield connect
        answers.set()
    server.force_exit = True
    await server.shutdown()


def run(test: Callable[[], Awaitable[None]]) -> None:
    async def within() -> None:
        await asyncio.wait_for(test(), WAIT)

    asyncio.run(within())


async def is_closed(one: Opened) -> bool:
    """Wait until the server ends a connection."""
    try:
        return not await one[0].read()
    except ConnectionError:
        return True


async def is_answered(one: Opened) -> bool:
    return b" 204 " in await one[0].readuntil(b"\r\n\r\n")


async def drip(writer: asyncio.StreamWriter) -> None:
    while not writer.is_closing():
        writer.write(b"X")
        await asyncio.sleep(0.1)


@pytest.mark.parametrize("sent", [b"", b"GET / HT", GET + b"GET / HT"])
def test_a_request_must_come_in_time(sent: bytes) -> None:
    async def test() -> None:
        answers = asyncio.Event()
        answers.set()
        async with serving(10, 1, answers) as connect:
            one = await connect(sent)
            dripping = asyncio.create_task(drip(one[1]))
            assert not sent.startswith(GET) or await is_answered(one)
            assert await is_closed(one)
            dripping.cancel()

    run(test)


def test_an_answer_may_take_longer() -> None:
    async def test() -> None:
        answers = asyncio.Event()
        async with serving(10, 1, answers) as connect:
            one = await connect(GET)
            await asyncio.sleep(1.5)
            answers.set()
            assert await is_answered(one)
            dripping = asyncio.create_task(drip(one[1]))
            assert await is_closed(one)
            dripping.cancel()

    run(test)


def test_idle_connections_make_room() -> None:
    async def test() -> None:
        answers = asyncio.Event()
        async with serving(3, 600, answers) as connect:
            busy = await connect(GET)
            await asyncio.sleep(0.1)
            first, second = await connect(b""), await connect(b"GET")
            await asyncio.sleep(0.1)
            asked = await connect(GET)
            assert await is_closed(first)
            answers.set()
            second[1].write(GET[3:])
            for one in (busy, asked, second):
                assert await is_answered(one)

    run(test)


def test_few_more_connections_than_the_limit() -> None:
    async def test() -> None:
        answers = asyncio.Event()
        async with serving(2, 600, answers) as connect:
            taken = []
            for _ in range(2 + MORE):
                taken.append(await connect(GET))
                await asyncio.sleep(0.02)
            assert await is_closed(await connect(b""))
            answers.set()
            for one in taken:
                assert await is_answered(one)

    run(test)


def test_fewer_connections_than_descriptors(monkeypatch: pytest.MonkeyPatch) -> None:
    resource = pytest.importorskip("resource")
    monkeypatch.setattr(resource, "getrlimit", lambda _: (96, 1024))
    assert (limit_connections(1000), limit_connections(7)) == (32, 7)
    monkeypatch.setattr(resource, "getrlimit", lambda _: (resource.RLIM_INFINITY, 0))
    assert limit_connections(1000) == 1000


@pytest.mark.parametrize(
    ("message", "error", "told"),
    [
        ("socket.accept() out of system resource", OSError(24, "x"), "can be accepted: [Errno 24]"),
        ("Fatal read error on socket transport", MemoryError(), "too little memory"),
    ],
)
def test_what_is_scarce_is_told_once_a_minute(
    message: str,
    error: Exception,
    told: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    now = [0.0]
    monkeypatch.setattr(connections.time, "monotonic", lambda: now[0])
    errors, loop = LoopErrors(), asyncio.new_event_loop()
    context = {"message": message, "exception": error}
    with caplog.at_level(logging.ERROR):
        for _ in range(2000):
            errors(loop, context)
        assert len(caplog.records) == 1 and told in caplog.text
        now[0] = 61
        errors(loop, context)
        assert len(caplog.records) == 2
        errors(loop, {"message": "another"})
        assert caplog.records[2].name == "asyncio"
    loop.close()


def scope_of(path: str, method: str = "POST", **state: Any) -> dict[str, Any]:
    return {"type": "http", "method": method, "path": path, "headers": [], "state": state}


def test_requests_beyond_the_limit() -> None:
    async def test() -> None:
        go, statuses = asyncio.Event(), list[int]()

        async def app(scope: Any, receive: Any, send: Any) -> None:
            await go.wait()
            await send({"type": "http.response.start", "status": 200, "headers": []})

        async def send(message: Any) -> None:
            if "status" in message:
                statuses.append(message["status"])

        async def receive() -> Any:
            raise AssertionError("no body is read")

        limit = RequestLimit(app, 2, ["/health"])
        scopes = [scope_of("/chat")] * 3 + [scope_of("/health"), scope_of("/chat", holder=0)]
        asked = [asyncio.create_task(limit(scope, receive, send)) for scope in scopes]
        await asyncio.sleep(0.05)
        assert statuses == [503]
        go.set()
        await asyncio.gather(*asked)
        await limit(scope_of("/chat"), receive, send)
        assert statuses == [503, 200, 200, 200, 200, 200]

    run(test)


@pytest.mark.parametrize(
    "path, method, size, status",
    [
        ("/chat", "POST", 4 << 20, 200),
        ("/chat", "POST", (4 << 20) + 1, 413),
        ("/models/load", "POST", 1 << 20, 200),
        ("/models/load", "POST", (1 << 20) + 1, 413),
        ("/models", "GET", 1 << 16, 200),
        ("/models", "GET", (1 << 16) + 1, 413),
    ],
)
@pytest.mark.parametrize("said", [True, False])
def test_bodies_by_route(path: str, method: str, size: int, status: int, said: bool) -> None:
    scope = scope_of(path, method)
    scope["headers"] = [(b"content-length", str(size).encode())] if said else []
    assert statuses_of([(scope, [size])]) == [status]


def test_bodies_together() -> None:
    assert statuses_of([(scope_of("/chat"), [1 << 20] * 4)] * 3) == [503, 200, 200]


def statuses_of(requests: list[tuple[dict[str, Any], list[int]]]) -> list[int]:
    """Send bodies in parts by turns; they are read, and answered when all are there or refused."""
    statuses, n_read = list[int](), [0]

    async def app(scope: Any, receive: Any, send: Any) -> None:
        try:
            while (await receive()).get("more_body"):
                pass
        except HTTPError as e:
            statuses.append(e.code)
            n_read[0] += 1
        else:
            n_read[0] += 1
            while n_read[0] < len(requests):
                await asyncio.sleep(0.01)
            await send({"type": "http.response.start", "status": 200, "headers": []})

    async def send(message: Any) -> None:
        if "status" in message:
            statuses.append(message["status"])

    def receiver(parts: list[int]) -> Any:
        left = list(parts)

        async def receive() -> Any:
            await asyncio.sleep(0)
            n = left.pop(0)
            return {"type": "http.request", "body": bytes(n), "more_body": bool(left)}

        return receive

    async def test() -> None:
        limit = BodyLimit(app, lambda: (4 << 20, 9 << 20), WAIT, ["/chat"])
        await asyncio.gather(*(limit(scope, receiver(parts), send) for scope, parts in requests))
        assert limit.n_bytes == 0

    run(test)
    return statuses


def test_a_client_does_not_use_up_the_bytes_of_all_bodies() -> None:
    """Requests of one client fill them; another client's request is read, and theirs are not."""
    sizes: dict[str, int] = {"many": 0, "other": 0}
    refused: list[str] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        while True:
            message = await receive()
            sizes[scope["name"]] += len(message["body"])
            if not message["more_body"]:
                await asyncio.sleep(0.01)  # the bodies are in memory at the same time
                return

    async def ask(limit: BodyLimit, name: str, client: Client, n_parts: int) -> None:
        left = [1 << 20] * n_parts

        async def receive() -> Any:
            await asyncio.sleep(0)
            return {"type": "http.request", "body": bytes(left.pop()), "more_body": bool(left)}

        CLIENT.set(client)
        scope = {"type": "http", "method": "POST", "path": "/chat", "headers": [], "name": name}
        try:
            await limit(scope, receive, None)  # type: ignore[arg-type]
        except HTTPError:
            refused.append(name)

    async def test() -> None:
        limit = BodyLimit(app, lambda: (4 << 20, 8 << 20), WAIT, ["/chat"])
        many, other = Client("many"), Client("other")
        asked = [ask(limit, "many", many, 4) for _ in range(4)]
        await asyncio.gather(*asked, ask(limit, "other", other, 3))
        assert limit.n_bytes == limit.n_clients == many.n_bytes == other.n_bytes == 0

    run(test)
    assert sizes["other"] == 3 << 20 and "other" not in refused
    assert "many" in refused


class Delays:
    """The first connection waits."""

    def __init__(self) -> None:
        self.found = iter([1.0])

    def open(self, address: str) -> None: ...

    def close(self, address: str) -> None: ...

    def delay(self, address: str, now: float) -> float:
        return next(self.found, 0.0)


@pytest.mark.parametrize("busy", [True, False])
def test_a_connection_that_must_wait_is_overtaken(busy: bool) -> None:
    """Only while responses are generated."""

    async def test() -> None:
        answers, order = asyncio.Event(), list[str]()
        answers.set()
        async with serving(9, WAIT, answers, pace=Delays()) as connect:

            async def get(name: str) -> None:
                one = await connect(GET)
                assert await is_answered(one)
                order.append(name)

            first = asyncio.ensure_future(get("first"))
            await asyncio.sleep(0.2)  # it is open
            await asyncio.gather(first, get("second"))
        assert order == (["second", "first"] if busy else ["first", "second"])

    held = object.__new__(type("Response", (), {}))
    if busy:
        ANSWERS.add(held)
    try:
        run(test)
    finally:
        ANSWERS.discard(held)


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_small_writes_are_sent_at_once(host: str) -> None:
    """Otherwise a stream's first token waits until the client acknowledges the headers: 40 ms."""
    if ":" in host and not has_ipv6():
        pytest.skip("this machine has no IPv6")
    seen = list[int]()

    async def accepted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        made = writer.get_extra_info("socket")
        seen.append(made.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
        writer.close()

    async def connect() -> None:
        with _bind(host, 0, several=False) as bound:
            server = await asyncio.start_server(accepted, sock=bound)
            async with server:
                reader, writer = await asyncio.open_connection(host, bound.getsockname()[1])
                await reader.read()
                writer.close()

    asyncio.run(asyncio.wait_for(connect(), WAIT))
    assert seen and seen[0]
