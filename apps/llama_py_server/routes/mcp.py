"""The models as tools of an MCP server: route /mcp (--mcp-serve), and `llama-py mcp` (stdio.py).

Each tool is a request to another path of this server, with the same checks and limits. Requests
over HTTP have no session: each POST gets one JSON response.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Message

from ggml_py.machine.release import VERSION
from llama_py_server.routes.inner import Handle, ask
from llama_py_server.wire.body import read_body
from llama_py_server.wire.clients import unless_gone
from llama_py_server.wire.responses import GONE
from llama_py_tools.mcp.servers import import_mcp

if TYPE_CHECKING:
    from llama_py_server.models.model_pool import ModelPool

PATH = "/mcp"
MAX_NAMES = 200  # of models in a schema
MAX_TOKENS = 1024  # of a response, by default: many clients wait for a minute only
_LENGTH = {"type": "integer", "minimum": 1, "default": MAX_TOKENS}
_TEMPERATURE = {"type": "number", "minimum": 0}
_TEXT = {"type": "string"}
_MESSAGES = {
    "type": "array",
    "minItems": 1,
    "items": {
        "type": "object",
        "properties": {"role": {"enum": ["system", "user", "assistant"]}, "content": _TEXT},
        "required": ["role", "content"],
    },
}
_TEXTS = {"anyOf": [_TEXT, {"type": "array", "items": _TEXT, "minItems": 1}]}

# Each tool: the path that it asks, its description, its required and other arguments.
TOOLS: dict[str, tuple[str, str, dict[str, Any], dict[str, Any]]] = {
    "chat": (
        "/v1/chat/completions",
        "Respond to the messages of a conversation, with the model's chat template.",
        {"messages": _MESSAGES},
        {"max_tokens": _LENGTH, "temperature": _TEMPERATURE, "seed": {"type": "integer"}},
    ),
    "complete": (
        "/v1/completions",
        "Continue a text, without a chat template.",
        {"prompt": _TEXT},
        {
            "max_tokens": _LENGTH,
            "temperature": _TEMPERATURE,
            "seed": {"type": "integer"},
            "stop": {"type": "array", "items": _TEXT},
        },
    ),
    "embed": (
        "/v1/embeddings",
        "Return the embedding of a text, or one embedding per text of a list.",
        {"input": _TEXTS},
        {},
    ),
    "tokenize": (
        "/tokenize",
        "Return the token ids of a text.",
        {"content": _TEXT},
        {"add_special": {"type": "boolean", "default": False}},
    ),
}


class ModelTools:
    """The tools, whose calls are requests to other paths of the server."""

    def __init__(self, known: Mapping[tuple[str, str], Handle], pool: ModelPool) -> None:
        self.pool = pool
        self._handles = {name: known["POST", tool[0]] for name, tool in TOOLS.items()}

    def build_server(self, request: Request, ready: Callable[[], Awaitable[None]]) -> Any:
        """Return a server of the `mcp` package.

        Args:
            request: The request of the client, which the requests of calls repeat.
            ready: Waits before a call until models can be used.
        """
        from mcp import types
        from mcp.server.lowlevel import Server

        async def list_tools(context: Any, params: Any) -> Any:
            return types.ListToolsResult(tools=[types.Tool(**one) for one in self.describe()])

        async def call_tool(context: Any, params: Any) -> Any:
            await ready()
            texts, is_error = await self._call(request, params.name, params.arguments or {})
            content = [types.TextContent(type="text", text=text) for text in texts]
            return types.CallToolResult(content=content, is_error=is_error)

        return Server("llama-py", version=VERSION, on_list_tools=list_tools, on_call_tool=call_tool)

    def describe(self) -> list[dict[str, Any]]:
        """Return the tools as fields of `mcp.types.Tool`."""
        pool, found = self.pool, []
        for name, (_, about, required, others) in TOOLS.items():
            if name == "embed" and not (pool.several or pool.single_entry.embeds):
                continue
            model, needed = {}, [*required]
            if pool.several:
                model = {"model": {"enum": sorted(pool.entries)[:MAX_NAMES]}}
                needed.append("model")
            schema = {
                "type": "object",
                "properties": {**required, **others, **model},
                "required": needed,
                "additionalProperties": False,
            }
            found.append({"name": name, "description": about, "input_schema": schema})
        return found

    async def _call(
        self, request: Request, name: str, given: Mapping[str, Any]
    ) -> tuple[list[str], bool]:
        """Return the texts of a tool's result, and True for an error."""
        known = {one["name"]: one["input_schema"]["properties"] for one in self.describe()}
        if name not in known:
            return [f"unknown tool {name!r}; known: {', '.join(known)}"], True
        wrong = [key for key in given if key not in known[name]]
        if wrong:
            return [f"unknown argument {wrong[0]!r}; known: {', '.join(known[name])}"], True
        defaults = {"max_tokens": MAX_TOKENS} if "max_tokens" in known[name] else {}
        found = await ask(request, self._handles[name], {**defaults, **given})
        error = found.get("error") if isinstance(found, dict) else None
        if error is not None:
            return [str(error.get("message", error))], True
        return _texts(name, found), False


def handles(tools: ModelTools) -> dict[str, Handle]:
    """Return the handlers of the path by method. ModelError without the package."""
    import_mcp("--mcp-serve")

    async def post(request: Request) -> Response:
        tools.pool.check_ready()
        body = bytes(await read_body(request))
        found = await unless_gone(request, _respond(request, body, tools))
        return GONE if found is None else found

    return {"POST": post, "GET": _refuse_method, "DELETE": _refuse_method}


async def _refuse_method(request: Request) -> Response:
    """Answer a request for a stream or for the end of a session; clients expect this status."""
    return Response(status_code=405, headers={"Allow": "POST"})


async def _respond(request: Request, body: bytes, tools: ModelTools) -> Response:
    """Return the response of the `mcp` package to one message."""
    from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

    async def check_ready() -> None:
        tools.pool.check_ready()

    manager = StreamableHTTPSessionManager(
        tools.build_server(request, check_ready),
        json_response=True,
        stateless=True,
        max_request_body_size=len(body) + 1,
    )
    whole = _BufferedExchange(body)
    async with manager.run():
        await manager.handle_request(request.scope, whole.receive, whole.send)
    return whole.response()


class _BufferedExchange:
    """A request that has been received, and its response in memory."""

    def __init__(self, body: bytes) -> None:
        self._waiting: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]
        self._status, self._data = 500, bytearray()
        self._headers: list[tuple[bytes, bytes]] = []

    async def receive(self) -> Message:
        if self._waiting:
            return self._waiting.pop()
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._status, self._headers = message["status"], list(message["headers"])
        self._data += message.get("body", b"")

    def response(self) -> Response:
        found = Response(bytes(self._data), self._status)
        found.raw_headers = self._headers
        return found


def _texts(name: str, found: Any) -> list[str]:
    if name == "tokenize":
        return [json.dumps(found["tokens"])]
    if name == "embed":
        return [json.dumps([one["embedding"] for one in found["data"]])]
    choice = found["choices"][0]
    text = choice["text"] if name == "complete" else choice["message"]["content"] or ""
    return [text, *(["(max_tokens is reached)"] if choice["finish_reason"] == "length" else [])]
