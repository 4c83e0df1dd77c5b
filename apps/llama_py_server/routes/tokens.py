"""/tokenize and /detokenize."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from llama_py_server.schema.prompts import tokens_of
from llama_py_server.wire.body import object_of, value
from llama_py_server.wire.errors import invalid
from llama_py_server.wire.responses import as_json

if TYPE_CHECKING:
    from llama_py_server.models.state import ModelState


async def tokenize(request: Request, state: ModelState) -> Response:
    body = await object_of(request)
    if "content" not in body:
        return as_json({"tokens": []})
    special, parse = value(body, "add_special", False), value(body, "parse_special", True)
    t = state.tokenizer
    ids = await run_in_threadpool(tokens_of, t, body["content"], special, parse)
    if not value(body, "with_pieces", False):
        return as_json({"tokens": ids})
    pieces = [{"id": id, "piece": _piece(t.token_to_piece(id, special=True))} for id in ids]
    return as_json({"tokens": pieces})


def _piece(data: bytes) -> Any:
    """Its text, or its bytes where they are not UTF-8."""
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return list(data)


async def detokenize(request: Request, state: ModelState) -> Response:
    body = await object_of(request)
    ids, t = body.get("tokens", []), state.tokenizer
    if not isinstance(ids, list) or not all(type(id) is int for id in ids):
        raise invalid("'tokens' must be an array of token ids")
    if any(not 0 <= id < t.n_vocab for id in ids):
        raise invalid(f"'tokens' has an id outside of the vocabulary, 0..{t.n_vocab - 1}")
    data = b"".join(t.token_to_piece(id, special=True) for id in ids)
    return as_json({"content": data.decode("utf-8", "replace")})
