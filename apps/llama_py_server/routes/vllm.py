"""Routes of vLLM: /score, /pooling."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from starlette.requests import Request
from starlette.responses import Response

from llama_py.hooks.values import to_bf16
from llama_py.support.stopping import iterate_checked
from llama_py.text.embed import normalize_rows
from llama_py_server.routes.embeddings import parse_texts, read_rows
from llama_py_server.routes.tei import cut, cut_pair, scale
from llama_py_server.schema.chat import read_text
from llama_py_server.schema.fields import RequestField, absent, choice, flag, integer, read_fields
from llama_py_server.schema.prompts import clean_text
from llama_py_server.wire import work
from llama_py_server.wire.body import Body, check_length, read_object, text
from llama_py_server.wire.errors import HTTPError, invalid, not_supported
from llama_py_server.wire.ids import new_id
from llama_py_server.wire.responses import as_long_json

if TYPE_CHECKING:
    from llama_py.batch import F32
    from llama_py_server.models.state import ModelState

_INT32 = 2**31 - 1
SCORE: dict[str, RequestField] = {
    "truncate_prompt_tokens": integer(-1, _INT32),
    "truncation_side": replace(choice("left", "right"), into="truncation_direction"),
    "use_activation": flag(),
}
DTYPES = {"float32": "f4", "float16": "f2", "bfloat16": "u2"}  # of an array of bytes
ORDERS = {"native": "=", "little": "<", "big": ">"}
EMBED, CLASSIFY = ("embed", "token_embed"), ("classify", "score")  # tasks
POOLING: dict[str, RequestField] = {
    **SCORE,
    "encoding_format": choice("float", "base64", "bytes", "bytes_only"),
    "embed_dtype": choice(*DTYPES),
    "endianness": choice(*ORDERS),
    "dimensions": integer(1, _INT32),
    "task": choice(*EMBED, *CLASSIFY),
    "add_special_tokens": flag(),
    "add_generation_prompt": flag(),
    "continue_final_message": flag(),
    "padding": choice("do_not_pad"),
    "normalize": absent("vLLM has removed it; use 'use_activation'"),
    "chat_template": absent("requests cannot bring a template; start the server with one"),
    "data": absent("the server has no plugins; send 'input' or 'messages'"),
}
MAX_ITEMS = 256  # items of a header; clients limit its length
PAIRS = (("text_1", "text_2"), ("queries", "documents"), ("queries", "items"), ("data_1", "data_2"))


def _check(state: ModelState) -> None:
    if not (state.params.embedding or state.params.reranking):
        why = "This server does not embed. Start it with `--embeddings` or `--reranking`"
        raise not_supported(why)


def _limit(state: ModelState, given: Body) -> int:
    """Return the number of tokens to keep of each text."""
    most: int = given.get("truncate_prompt_tokens", -1)
    if most == 0:
        raise invalid(
            "Field 'truncate_prompt_tokens': must be -1 (the server's limit) or at least 1, got 0"
        )
    return state.engine.n_text if most < 0 else min(most, state.engine.n_text)


async def score(request: Request, state: ModelState) -> Response:
    """Score pairs of texts: by the model's classifier, or by the cosine of their embeddings."""
    _check(state)
    body = await read_object(request)
    given = read_fields(body, SCORE)
    left, right = _pairs(body)
    if state.params.reranking:
        cutting = {"truncate": "truncate_prompt_tokens" in given}

        def prompts() -> list[list[int]]:
            both = zip(left, right, strict=True)
            most = _limit(state, given)
            return [cut_pair(state, one, cutting, most) for one in iterate_checked([*both])]

        found = await work.read(request, prompts)
        raw = not given.get("use_activation", True)
        rows = await read_rows(request, state, found, -1)
        scores = [scale(state, row[0], raw)[0] for row in rows]
    else:
        texts = [*dict.fromkeys((*left, *right))]
        found = await work.read(request, _prompts, state, {"input": texts}, given)
        pooling = "mean" if state.pooling == "none" else ""
        units = np.concatenate(await read_rows(request, state, found, 2, pooling))
        row_of = dict(zip(texts, units, strict=True))
        scores = [float(row_of[a] @ row_of[b]) for a, b in zip(left, right, strict=True)]
    n = sum(map(len, found))
    data = [{"index": i, "object": "score", "score": one} for i, one in enumerate(scores)]
    return await work.read(request, _write, state, body, "score-", data, n)


def _pairs(body: Body) -> tuple[list[str], list[str]]:
    """Return two lists of equal length. HTTPError for wrong fields."""
    names = next((pair for pair in PAIRS if pair[0] in body and pair[1] in body), None)
    if names is None:
        raise invalid('"text_1" and "text_2" must be provided')
    left, right = (_read_texts(name, body[name]) for name in names)
    if len(left) == 1:
        left = left * len(right)
    if len(left) != len(right):
        raise invalid(
            f"'{names[0]}' must have 1 text or {len(right)} texts, like '{names[1]}'"
            f", got {len(left)}"
        )
    return left, right


def _read_texts(name: str, given: Any) -> list[str]:
    texts = [given] if isinstance(given, str) else given
    if not isinstance(texts, list) or not texts or not all(isinstance(t, str) for t in texts):
        raise invalid(f"'{name}' must be a string or a non-empty array of strings")
    check_length(name, len(texts))
    return texts


def _prompts(state: ModelState, body: Body, given: Body) -> list[list[int]]:
    """Return the ids of each text of `input`, or of the conversation in `messages`."""
    is_chat = body.get("messages") is not None
    special = given.get("add_special_tokens", not is_chat)
    try:
        if is_chat:
            found = [_chat(state, body, given, special)]
        else:
            found = parse_texts(state, body, "input", special=special)
    except HTTPError as e:
        if e.kind != "invalid_request_error" or e.message.startswith("Field "):
            raise
        raise invalid(f"Field '{'messages' if is_chat else 'input'}': {e}") from None
    cutting = {**given, "truncate": "truncate_prompt_tokens" in given}
    most = _limit(state, given)
    return [cut(state, ids, cutting, most, special) for ids in found]


def _chat(state: ModelState, body: Body, given: Body, special: bool) -> list[int]:
    begins = given.get("add_generation_prompt", False)
    prompt = read_text(state, body, begins, given.get("continue_final_message", False))
    ids = state.tokenizer.tokenize(clean_text(prompt), special)
    if not ids:
        raise invalid("the chat template returns no text")
    return ids


async def pool(request: Request, state: ModelState) -> Response:
    """Return the pooled rows of texts or of a conversation, or rows of tokens if the server does
    not pool."""
    _check(state)
    body = await read_object(request)
    given = read_fields(body, POOLING)
    if body.get("input") is None and body.get("messages") is None:
        raise invalid("Field 'input': must be provided, or 'messages'")
    if body.get("input") is not None and body.get("messages") is not None:
        raise invalid("Field 'messages': cannot be combined with 'input'")
    scores = state.params.reranking
    task, served = given.get("task"), CLASSIFY if scores else EMBED
    if task is not None and task not in served:
        raise invalid(f"Field 'task': must be in {', '.join(served)} on this server, got {task!r}")
    how = "none" if task == "token_embed" else "mean" if _is_embed(state, task) else ""
    size, most = given.get("dimensions"), state.model.hparams.n_embd_out
    if size is not None and (scores or size > most):
        raise invalid(f"Field 'dimensions': must be at most {most}, got {size}")
    prompts = await work.read(request, _prompts, state, body, given)
    form = given.get("encoding_format", "float")
    if form == "bytes" and len(prompts) > MAX_ITEMS:
        raise invalid(
            f"Field 'encoding_format': 'bytes' has at most {MAX_ITEMS} texts, because a header has "
            f"their positions, got {len(prompts)}; use 'bytes_only'"
        )
    norm = state.params.normalize if given.get("use_activation", True) else -1
    found = await read_rows(request, state, prompts, norm if size is None else -1, how)
    if size is not None:
        found = [normalize_rows(rows[:, :size], norm) for rows in found]
    whole = how == "none" or (state.pooling == "none" and how == "")
    raw = not given.get("use_activation", True)

    def write() -> Response:
        n_tokens = sum(map(len, prompts))
        values = (
            _values(state, rows, raw) if whole else _values(state, rows, raw)[0]
            for rows in iterate_checked(found)
        )
        if form in ("bytes", "bytes_only"):
            return _write_bytes(state, body, given, [*values], n_tokens)
        items = (_encode_base64(v, given) if form == "base64" else v.tolist() for v in values)
        data = [{"index": i, "object": "pooling", "data": one} for i, one in enumerate(items)]
        return _write(state, body, "pool-", data, n_tokens)

    return await work.read(request, write)


def _is_embed(state: ModelState, task: str | None) -> bool:
    return task == "embed" and state.pooling == "none"


def _values(state: ModelState, rows: F32, raw: bool) -> F32:
    """Return the rows of a text, or the scores of a classifier as a row."""
    if state.params.reranking:
        return np.array([scale(state, rows[0], raw)], np.float32)
    return rows


def _encode(values: F32, given: Body) -> bytes:
    kind, order = given.get("embed_dtype", "float32"), ORDERS[given.get("endianness", "native")]
    found: Any = to_bf16(values) if kind == "bfloat16" else values
    with np.errstate(over="ignore"):
        return bytes(found.astype(f"{order}{DTYPES[kind]}").tobytes())


def _encode_base64(values: F32, given: Body) -> str:
    return base64.b64encode(_encode(values, given)).decode()


def _write_bytes(
    state: ModelState, body: Body, given: Body, values: Sequence[F32], n_tokens: int
) -> Response:
    """Return values as bytes; the header `metadata` has their positions, except with
    `bytes_only`."""
    parts: list[bytes] = []
    items: list[Body] = []
    start = 0
    for i, one in enumerate(values):
        parts.append(_encode(one, given))
        end = start + len(parts[-1])
        items.append(
            {
                "index": i,
                "embed_dtype": given.get("embed_dtype", "float32"),
                "endianness": given.get("endianness", "native"),
                "start": start,
                "end": end,
                "shape": one.shape,
            }
        )
        start = end
    found = Response(b"".join(parts), media_type="application/octet-stream")
    if given["encoding_format"] == "bytes":
        found.headers["metadata"] = json.dumps(_head(state, body, "pool-", items, n_tokens))
    return found


def _write(
    state: ModelState, body: Body, prefix: str, data: Sequence[Any], n_tokens: int
) -> Response:
    return as_long_json(_head(state, body, prefix, data, n_tokens))


def _head(state: ModelState, body: Body, prefix: str, data: Sequence[Any], n_tokens: int) -> Body:
    return {
        "id": new_id(prefix),
        "object": "list",
        "created": int(time.time()),
        "model": text(body, "model", state.name),
        "data": data,
        "usage": {
            "prompt_tokens": n_tokens,
            "total_tokens": n_tokens,
            "completion_tokens": 0,
            "prompt_tokens_details": None,
        },
    }
