"""Misbehaving clients: they disconnect, or send garbage, too much data, or data too slowly."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Awaitable, Callable, Mapping
from functools import cache
from typing import Any

HUGE = 64 * 2**20  # bytes announced in the header
ROUTES = (
    "/completion",
    "/v1/completions",
    "/v1/chat/completions",
    "/v1/embeddings",
    "/v1/messages",
    "/v1/responses",
    "/v1/rerank",
    "/v1/systemone",
    "/tokenize",
    "/detokenize",
    "/apply-template",
    "/infill",
    "/slots/0?action=save",
    "/slots/9?action=erase",
    "/lora-adapters",
    "/nothing",
)
VALUES: tuple[Any, ...] = (
    None, -1, 0, 1, 2**63, -1e308, 1e308, "", "x" * 5000, [], {}, [[]], [None], True,
    "\ud800\u0000",
    {"type": "json_schema"}, [{"role": "user"}], [{"role": "user", "content": "hi"}], ["a"] * 500,
)  # fmt: skip
NO_JSON = (b"", b"{", b"\xff\xfe\x00", b"[" * 100_000, b"1e999", b'{"a": NaN}')
KEYS = (
    "prompt",
    "messages",
    "n_predict",
    "max_tokens",
    "temperature",
    "top_p",
    "top_k",
    "seed",
    "stop",
    "n",
    "stream",
    "grammar",
    "json_schema",
    "response_format",
    "tools",
    "tool_choice",
    "logprobs",
    "n_probs",
    "input",
    "query",
    "documents",
    "state",
    "questions",
    "content",
    "tokens",
    "id_slot",
    "cache_prompt",
    "logit_bias",
    "model",
    "samplers",
    "lora",
    "t_max_predict_ms",
    "min_keep",
    "mirostat",
    "dry_sequence_breakers",
    "filename",
)
LARGE = 8 * 2**20  # bytes of an unfinished body


def _asked(**more: Any) -> bytes:
    return json.dumps({"prompt": "Once", "n_predict": 2, **more}).encode()


def _prompt(text: bytes) -> bytes:
    return b'{"n_predict": 1, "prompt": ' + text + b"}"


LONG: dict[str, tuple[str, Callable[[], bytes]]] = {
    "nested lists": ("/completion", lambda: _prompt(b"[" * 10**6 + b"]" * 10**6)),
    "exponents": ("/completion", lambda: _prompt(b"[" + b"1e300," * 10**6 + b"1]")),
    "long integers": ("/completion", lambda: _prompt(b"[" + (b"1" * 4000 + b",") * 2000 + b"1]")),
    "one letter": ("/completion", lambda: _asked(prompt="a" * 10**6, n_predict=1)),
    "escapes": ("/completion", lambda: _prompt(b'"' + b"\\n" * 4 * 10**6 + b'"')),
    "30 MiB of text": ("/completion", lambda: _prompt(b'"' + b"a" * (30 << 20) + b'"')),
    "prompts": ("/completion", lambda: _asked(prompt=["a"] * 100_000)),
    "1000 prompts": ("/completion", lambda: _asked(prompt=["a"] * 1000, n_predict=1)),
    "pieces": (
        "/tokenize",
        lambda: json.dumps({"content": "a" * 10**6, "with_pieces": 1}).encode(),
    ),
    "ids": ("/detokenize", lambda: json.dumps({"tokens": [65] * 500_000}).encode()),
    "names of streams": ("/v1/streams/lookup", lambda: json.dumps({"ids": ["x"] * 10**5}).encode()),
    "messages": (
        "/v1/responses",
        lambda: json.dumps({"input": [{"role": "user", "content": "a"}] * 30_000}).encode(),
    ),
    "probabilities": (
        "/v1/completions",
        lambda: _asked(prompt="a " * 200, max_tokens=1, echo=True, logprobs=2000),
    ),
    "stop texts": ("/completion", lambda: _asked(stop=[f"s{i}" for i in range(100_000)])),
    "samplers": ("/completion", lambda: _asked(samplers=["top_k"] * 100_000)),
    "breakers": (
        "/completion",
        lambda: _asked(dry_sequence_breakers=[f"b{i}" for i in range(20_000)], dry_multiplier=1),
    ),
    "256 breakers": (
        "/completion",
        lambda: _asked(dry_sequence_breakers=[f"b{i}" for i in range(256)], dry_multiplier=1),
    ),
    "biases": ("/completion", lambda: _asked(logit_bias=[[f"w{i}", 1] for i in range(60_000)])),
    "schema": (
        "/completion",
        lambda: _asked(json_schema={"enum": [f"word{i}" for i in range(15_000)]}),
    ),
    "regex": ("/completion", lambda: _asked(regex="(a|b)*c" * 20_000)),
}


@cache
def _long(name: str) -> tuple[str, bytes]:
    route, body = LONG[name]
    return route, body()


class Rude:
    """Misbehaving calls, each on a separate connection. A call returns its result's name.

    address  local address of the connections; "": the system chooses
    asked    beginning of the last request
    """

    def __init__(self, host: str, port: int, seed: int, address: str = "") -> None:
        self.host, self.port, self.draw = host, port, random.Random(seed)
        self.address = address
        self.asked = ""

    def call_by_name(self, name: str) -> Callable[[], Awaitable[str]]:
        """Return the method with this name, or `long` for the name of a body in LONG."""
        if name in LONG:
            return lambda: self.long(name)
        found: Callable[[], Awaitable[str]] = getattr(self, name)
        return found

    def any(self) -> Callable[[], Awaitable[str]]:
        return self.draw.choice(
            [
                self.hangs_up,
                self.hangs_up,
                self.half_a_request,
                self.wrong_fields,
                self.wrong_fields,
                self.wrong_fields,
                self.no_json,
                self.no_http,
                self.huge,
                self.slow,
                self.crowd,
                self.drip,
                self.unfinished,
                self.long_work,
                self.long_work,
                self.other_page,
            ]
        )

    async def hangs_up(self) -> str:
        """Disconnect after a part of a stream, or before its first byte."""
        body = {
            "prompt": "Once",
            "n_predict": 400,
            "stream": self.draw.random() < 0.8,
            "ignore_eos": True,
        }
        reader, writer = await self._post("/completion", json.dumps(body).encode())
        try:
            n, seconds = self.draw.choice((1, 300, 5000)), self.draw.choice((0, 0.05, 0.3, 1))
            await asyncio.wait_for(reader.read(n), seconds)
        except asyncio.TimeoutError:
            pass
        if self.draw.random() < 0.5:
            writer.transport.abort()
        writer.close()
        return "hung up"

    async def half_a_request(self) -> str:
        _, writer = await self._open()
        text = self._head("/completion", 1000) + b'{"prompt": "Once'
        writer.write(text[: self.draw.randrange(1, len(text))])
        await writer.drain()
        await asyncio.sleep(self.draw.random())
        writer.close()
        return "half a request"

    async def wrong_fields(self) -> str:
        """Send a valid request with some fields of wrong types, sizes and values."""
        body: dict[str, Any] = {"prompt": "Once", "n_predict": 2, "max_tokens": 2}
        body |= {"messages": [{"role": "user", "content": "hi"}], "input": "a"}
        for _ in range(self.draw.randrange(1, 4)):
            body[self.draw.choice(KEYS)] = self.draw.choice(VALUES)
        body["stream"] = False
        return await self._answered(self.draw.choice(ROUTES), json.dumps(body).encode())

    async def no_json(self) -> str:
        return await self._answered(self.draw.choice(ROUTES), self.draw.choice(NO_JSON))

    async def no_http(self) -> str:
        reader, writer = await self._open()
        writer.write(self.draw.randbytes(200) + b"\r\n\r\n")
        return await self._line(reader, writer)

    async def huge(self) -> str:
        """Send a body of many megabytes; the server may respond before its end."""
        reader, writer = await self._open()
        writer.write(self._head("/completion", HUGE) + b'{"prompt": "')
        try:
            for _ in range(HUGE // 2**20):
                writer.write(b"a" * 2**20)
                await writer.drain()
        except ConnectionError:
            pass
        return await self._line(reader, writer)

    async def slow(self) -> str:
        """Send one byte at a time, and disconnect after a while."""
        _, writer = await self._open()
        body = b'{"prompt": "Once", "n_predict": 1}'
        data = self._head("/completion", len(body)) + body
        for i in range(self.draw.randrange(len(data))):
            writer.write(data[i : i + 1])
            await asyncio.sleep(0.005)
        writer.close()
        return "slow"

    async def crowd(self) -> str:
        """Open many connections without requests."""
        opened = [await self._open() for _ in range(60)]
        await asyncio.sleep(self.draw.random() * 3)
        for _, writer in opened:
            writer.close()
        return "crowd"

    async def drip(self) -> str:
        """Send a header without an end, and disconnect after a while."""
        _, writer = await self._open()
        writer.write(b"GET /health HTTP/1.1\r\nX: ")
        try:
            for _ in range(self.draw.randrange(300)):
                writer.write(b"x")
                await writer.drain()
                await asyncio.sleep(0.1)
        except ConnectionError:
            return "drip closed"
        writer.close()
        return "drip"

    async def unfinished(self) -> str:
        """Send most of a large body, then pause."""
        reader, writer = await self._open()
        try:
            writer.write(self._head("/v1/chat/completions", LARGE + 100) + b" " * LARGE)
            await asyncio.wait_for(writer.drain(), 10)
            await asyncio.wait_for(reader.readline(), 5 * self.draw.random())
        except (ConnectionError, asyncio.TimeoutError):
            pass
        writer.close()
        return "unfinished"

    async def long_work(self) -> str:
        """Send a body that takes a long time to parse, to tokenize or to prepare."""
        return await self.long(self.draw.choice([*LONG]))

    async def long(self, name: str) -> str:
        return await self._answered(*_long(name))

    async def other_page(self) -> str:
        """Send a request with the headers of another site's page."""
        fields = self.draw.choice(({"Host": "example.com"}, {"Origin": "http://example.com"}))
        body = json.dumps({"model": "none"}).encode()
        reader, writer = await self._open()
        writer.write(self._head("/models/unload", len(body), **fields) + body)
        found = await self._line(reader, writer)
        return "other page" if found == "403" else f"other page {found}"

    async def _open(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        local = (self.address, 0) if self.address else None
        return await asyncio.open_connection(self.host, self.port, local_addr=local)

    async def _answered(self, route: str, body: bytes) -> str:
        return await self._line(*await self._post(route, body))

    async def _post(
        self, route: str, body: bytes
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        self.asked = f"{route} {body[:1000]!r}"
        reader, writer = await self._open()
        writer.write(self._head(route, len(body)) + body)
        await writer.drain()
        return reader, writer

    def _head(self, route: str, length: int, **more: str) -> bytes:
        fields: Mapping[str, Any] = {
            "Host": self.host,
            "Content-Type": "application/json",
            "Content-Length": length,
            "Connection": "close",
            **more,
        }
        lines = [f"POST {route} HTTP/1.1", *(f"{k}: {v}" for k, v in fields.items()), "", ""]
        return "\r\n".join(lines).encode()

    async def _line(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> str:
        """Return the received status, or "silence" after a minute."""
        try:
            words = (await asyncio.wait_for(reader.readline(), 60)).decode(errors="replace").split()
            return words[1] if len(words) > 1 else "closed"
        except asyncio.TimeoutError:
            return "silence"
        except ConnectionError:
            return "closed"
        finally:
            writer.close()
