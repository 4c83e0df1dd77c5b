"""Routes of embeddings: /embedding, /embeddings, /v1/embeddings."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from llama_py.serving import TooLong
from llama_py.support.stopping import iterate_checked
from llama_py.text.embed import normalize_rows
from llama_py_server.schema.prompts import parse_prompt
from llama_py_server.wire import work
from llama_py_server.wire.body import Body, check_length, objects, read_object, text, value
from llama_py_server.wire.clients import unless_gone
from llama_py_server.wire.errors import HTTPError, invalid, not_supported
from llama_py_server.wire.responses import as_long_json
from llama_py_server.wire.usage import CLIENT

if TYPE_CHECKING:
    from llama_py.batch import F32
    from llama_py_server.models.state import ModelState

_FORMAT = "The format to return the embeddings in. Can be either float or base64"


async def native(request: Request, state: ModelState) -> Response:
    """Return embeddings in llama-server's format."""
    return await _embed(request, state, openai=False)


async def openai(request: Request, state: ModelState) -> Response:
    """Return embeddings of OpenAI's API."""
    return await _embed(request, state, openai=True)


def check_embeds(state: ModelState) -> None:
    """Raise HTTPError if the server does not embed."""
    if not state.params.embedding:
        raise not_supported("This server does not support embeddings. Start it with `--embeddings`")


async def _embed(request: Request, state: ModelState, openai: bool) -> Response:
    check_embeds(state)
    if openai and state.pooling == "none":
        raise invalid(
            "Pooling type 'none' is not OAI compatible. Please use a different pooling type"
        )
    body = await read_object(request)
    openai = openai and "input" in body
    form = body.get("encoding_format", "float")
    if form not in ("float", "base64"):
        raise invalid(_FORMAT)
    size = _dimensions(state, body)
    prompts = await work.read(request, parse_texts, state, body, "input", "content")
    norm = value(body, "embd_normalize", state.params.normalize)
    found = await embed_rows(request, state, prompts, norm if size is None else -1)
    if size is not None:
        norm = -1 if state.pooling == "none" else norm
        found = [normalize_rows(rows[:, :size], norm) for rows in found]
    n = sum(map(len, prompts))
    head = {
        "model": text(body, "model", state.name),
        "object": "list",
        "usage": {"prompt_tokens": n, "total_tokens": n},
    }
    return await work.read(request, _write_embeddings, found, form, head if openai else None)


def _write_embeddings(found: Sequence[F32], form: str, head: Body | None) -> Response:
    if head is None:
        whole = ([row.tolist() for row in rows] for rows in iterate_checked(found))
        return as_long_json([{"index": i, "embedding": rows} for i, rows in enumerate(whole)])
    data = [_item(i, rows[0], form) for i, rows in iterate_checked(enumerate(found))]
    return as_long_json({**head, "data": data})


def _dimensions(state: ModelState, body: Body) -> int | None:
    """Return the requested length of the embeddings, or None for whole embeddings."""
    size, most = body.get("dimensions"), state.model.hparams.n_embd_out
    if size is not None and not (type(size) is int and 1 <= size <= most):
        raise invalid(f"'dimensions' must be an integer from 1 to {most}, got {size!r}")
    return size


def _item(index: int, row: F32, form: str) -> dict[str, Any]:
    found: dict[str, Any] = {"embedding": row.tolist(), "index": index, "object": "embedding"}
    if form == "base64":
        found["embedding"] = base64.b64encode(row.astype("<f4").tobytes()).decode()
        found["encoding_format"] = "base64"
    return found


def parse_texts(
    state: ModelState, body: Body, *names: str, special: bool = True
) -> list[list[int]]:
    """Return the ids of each text in the first present field: a text, ids, or a list of both.
    special: add the model's special tokens to texts"""
    name = next((name for name in names if name in body), None)
    if name is None:
        raise invalid(f"{' or '.join(map(_quote, names))} must be provided")
    given = body[name]
    several = isinstance(given, list) and not any(type(one) is int for one in given)
    if several:
        check_length(name, len(given))
    found = [_tokens(state, one, special) for one in (given if several else [given])]
    if not found:
        raise invalid(f'"{name}" must not be empty')
    if not all(found):
        raise invalid("Input content cannot be empty")
    return found


def _quote(name: str) -> str:
    return f'"{name}"'


def _tokens(state: ModelState, given: Any, special: bool) -> list[int]:
    if state.sees and isinstance(given, dict) and "multimodal_data" in given:
        raise not_supported("embeddings of images are not supported; send text only")
    if isinstance(given, dict) and "content" in given:
        parts = objects(given, "content")
        if any(part.get("type") != "text" for part in parts):
            raise invalid("unsupported content[].type")
        given = "".join(text(part, "text") for part in parts)
    return parse_prompt(state.tokenizer, given, special)


async def embed_rows(
    request: Request, state: ModelState, prompts: Sequence[Sequence[int]], norm: int
) -> list[F32]:
    """Return the rows of `read_rows`, with llama-server's error for a text that is too long."""
    try:
        return await read_rows(request, state, prompts, norm)
    except TooLong as e:
        raise HTTPError(
            "server_error",
            f"input ({e.n_prompt} tokens) is too large to process. increase the physical batch size"
            f" (current batch size: {e.n_ctx})",
        ) from None


async def read_rows(
    request: Request,
    state: ModelState,
    prompts: Sequence[Sequence[int]],
    norm: int,
    pooling: str = "",
) -> list[F32]:
    """Return each prompt's embedding [1, n]; without pooling [n_tokens, n].

    Args:
        pooling: Another pooling than the model's.

    Raises:
        ClientDisconnect: The client has left.
        TooLong: A prompt is longer than `engine.n_text`.
    """
    if (client := CLIENT.get()) is not None:
        client.count(sum(map(len, prompts)))
    pooling = pooling or state.pooling
    reading = state.engine.embed(prompts, pooling, norm, state.options.attention)
    found = await unless_gone(request, asyncio.wrap_future(reading))
    if found is None:
        raise ClientDisconnect
    return [np.atleast_2d(row) for row in found]
