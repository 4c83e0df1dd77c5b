"""Route /mcp (--mcp-serve): the models as an MCP server over streamable HTTP.

Each tool is a request to another path of this server, with the same checks and limits. Requests
have no session: each POST gets one JSON response.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
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


def handles(known: Mapping[tuple[str, str], Handle], pool: ModelPool) -> dict[str, Handle]:
    """Return the handlers of the path by method. ModelError without the package."""
    import_mcp("--mcp-serve")
    by_tool = {name: known["POST", tool[0]] for name, tool in TOOLS.items()}

    async def post(request: Request) -> Response:
        pool.check_ready()
        body = bytes(await read_body(request))
        found = await unless_gone(request, _respond(request, body, by_tool, pool))
        return GONE if found is None else found

    return {"POST": post, "GET": _refuse_method, "DELETE": _refuse_method}


async def _refuse_method(request: Request) -> Response:
    """Answer a request for a stream or for the end of a session; clients expect this status."""
    return Response(status_code=405, headers={"Allow": "POST"})


async def _respond(
    request: Request, body: bytes, by_tool: Mapping[str, Handle], pool: ModelPool
) -> Response:
    """Return the response of the `mcp` package to one message."""
    from mcp import types
    from mcp.server.lowlevel import Server
    from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

    async def list_tools(context: Any, params: Any) -> Any:
        return types.ListToolsResult(tools=[types.Tool(**one) for one in describe_tools(pool)])

    async def call_tool(context: Any, params: Any) -> Any:
        texts, is_error = await _call(request, by_tool, pool, params.name, params.arguments or {})
        content = [types.TextContent(type="text", text=text) for text in texts]
        return types.CallToolResult(content=content, is_error=is_error)

    server: Any = Server(
        "llama-py", version=VERSION, on_list_tools=list_tools, on_call_tool=call_tool
    )
    manager = StreamableHTTPSessionManager(
        server, json_response=True, stateless=True, max_request_body_size=len(body) + 1
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


def describe_tools(pool: ModelPool) -> list[dict[str, Any]]:
    """Return the tools as fields of `mcp.types.Tool`."""
    found = []
    for name, (_, about, required, others) in TOOLS.items():
        if name == "embed" and not _embeds(pool):
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


def _embeds(pool: ModelPool) -> bool:
    """Return False if the only model is loaded without embeddings."""
    lease = None if pool.several else pool.models.peek(pool.single_entry.name)
    if lease is None:
        return True
    try:
        return lease.served.state.params.embedding
    finally:
        lease.end()


async def _call(
    request: Request,
    by_tool: Mapping[str, Handle],
    pool: ModelPool,
    name: str,
    given: Mapping[str, Any],
) -> tuple[list[str], bool]:
    """Return the texts of a tool's result, and True for an error."""
    known = {one["name"]: one["input_schema"]["properties"] for one in describe_tools(pool)}
    if name not in known:
        return [f"unknown tool {name!r}; known: {', '.join(known)}"], True
    wrong = [key for key in given if key not in known[name]]
    if wrong:
        return [f"unknown argument {wrong[0]!r}; known: {', '.join(known[name])}"], True
    defaults = {"max_tokens": MAX_TOKENS} if "max_tokens" in known[name] else {}
    found = await ask(request, by_tool[name], {**defaults, **given})
    error = found.get("error") if isinstance(found, dict) else None
    if error is not None:
        return [str(error.get("message", error))], True
    return _texts(name, found), False


def _texts(name: str, found: Any) -> list[str]:
    if name == "tokenize":
        return [json.dumps(found["tokens"])]
    if name == "embed":
        return [json.dumps([one["embedding"] for one in found["data"]])]
    choice = found["choices"][0]
    text = choice["text"] if name == "complete" else choice["message"]["content"] or ""
    return [text, *(["(max_tokens is reached)"] if choice["finish_reason"] == "length" else [])]
