"""Routes /tokenize, /detokenize and /tokenizer_info, in the forms of llama-server and vLLM."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.responses import Response

from llama_py.support.stopping import iterate_checked
from llama_py_server.routes.chat import prompt_ids
from llama_py_server.schema.chat import read_chat
from llama_py_server.schema.prompts import parse_prompt
from llama_py_server.wire import work
from llama_py_server.wire.body import Body, check_unsupported, read_object, value
from llama_py_server.wire.errors import invalid
from llama_py_server.wire.responses import as_json, as_long_json

if TYPE_CHECKING:
    from llama_py.tokenizer import Tokenizer
    from llama_py_server.models.state import ModelState


async def tokenize(request: Request, state: ModelState) -> Response:
    """Return the tokens of a text, a prompt or a conversation."""
    body = await read_object(request)
    if "content" not in body:
        if "messages" in body:
            return await _tokenize_chat(request, state, body)
        if "prompt" in body:
            return await work.read(request, _tokenize_prompt, state, body)
        return as_json({"tokens": []})
    return await work.read(request, _tokenize, state.tokenizer, body)


async def _tokenize_chat(request: Request, state: ModelState, body: Body) -> Response:
    check_unsupported(body, ("chat_template",))
    chat, *_ = await work.read(request, read_chat, state, body)
    ids = await work.read(request, prompt_ids, state, chat)
    return await work.read(request, _write_count, state, [*ids], body)


def _tokenize_prompt(state: ModelState, body: Body) -> Response:
    special = value(body, "add_special_tokens", True)
    return _write_count(state, parse_prompt(state.tokenizer, body["prompt"], special), body)


def _write_count(state: ModelState, ids: list[int], body: Body) -> Response:
    """Return tokens in vLLM's form."""
    found: Body = {"count": len(ids), "max_model_len": state.engine.n_ctx, "tokens": ids}
    t, strings = state.tokenizer, None
    if value(body, "return_token_strs", False):
        strings = [
            t.token_to_piece(id, special=True).decode("utf-8", "replace") if id >= 0 else ""
            for id in iterate_checked(ids)
        ]
    return as_long_json({**found, "token_strs": strings})


def _tokenize(t: Tokenizer, body: Body) -> Response:
    special, parse = value(body, "add_special", False), value(body, "parse_special", True)
    ids = parse_prompt(t, body["content"], special, parse)
    if not value(body, "with_pieces", False):
        return as_long_json({"tokens": ids})
    pieces = [(id, _piece(t.token_to_piece(id, special=True))) for id in iterate_checked(ids)]
    return as_long_json({"tokens": [{"id": id, "piece": piece} for id, piece in pieces]})


def _piece(data: bytes) -> Any:
    """Return a token's text, or its bytes if they are not UTF-8."""
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return list(data)


async def detokenize(request: Request, state: ModelState) -> Response:
    """Return the text of tokens."""
    return await work.read(request, _detokenize, state.tokenizer, await read_object(request))


def _detokenize(t: Tokenizer, body: Body) -> Response:
    ids = body.get("tokens", [])
    if not isinstance(ids, list) or not all(type(id) is int for id in ids):
        raise invalid("'tokens' must be an array of token ids")
    if any(not 0 <= id < t.n_vocab for id in ids):
        raise invalid(f"'tokens' must have ids in the vocabulary, 0..{t.n_vocab - 1}")
    data = b"".join(t.token_to_piece(id, special=True) for id in iterate_checked(ids))
    text = data.decode("utf-8", "replace")
    return as_json({"content": text, "prompt": text})  # of llama-server and of vLLM


async def tokenizer_info(request: Request, state: ModelState) -> Response:
    """Return special tokens and the chat template with vLLM's fields."""
    t = state.tokenizer
    texts = {
        f"{name}_token": None if id is None else _piece(t.token_to_piece(id, special=True))
        for name in ("bos", "eos", "pad", "unk")
        for id in [t.special_ids.get(name)]
    }
    return as_json(
        {
            "tokenizer_class": t.kind,
            "chat_template": state.template.source,
            "add_bos_token": t.add_bos,
            "add_eos_token": t.add_eos,
            "model_max_length": state.engine.n_ctx,
            **texts,
        }
    )
