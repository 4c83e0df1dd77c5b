"""Routes of vLLM: /score, /pooling."""

from __future__ import annotations

import base64
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from starlette.requests import Request
from starlette.responses import Response

from llama_py.support.stopping import iterate_checked
from llama_py.text.embed import normalize_rows
from llama_py_server.routes.embeddings import parse_texts, read_rows
from llama_py_server.routes.tei import cut, cut_pair, scale
from llama_py_server.schema.fields import RequestField, choice, flag, integer, read_fields
from llama_py_server.wire import work
from llama_py_server.wire.body import Body, check_length, check_unsupported, read_object, text
from llama_py_server.wire.errors import invalid, not_supported
from llama_py_server.wire.ids import new_id
from llama_py_server.wire.responses import as_long_json

if TYPE_CHECKING:
    from llama_py.batch import F32
    from llama_py_server.models.state import ModelState

_INT32 = 2**31 - 1
SCORE: dict[str, RequestField] = {
    "truncate_prompt_tokens": integer(-1, _INT32),
    "use_activation": flag(),
}
POOLING: dict[str, RequestField] = {
    **SCORE,
    "encoding_format": choice("float", "base64"),
    "dimensions": integer(1, _INT32),
    "task": choice("embed", "token_embed", "classify", "score"),
}
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
        found = await work.read(request, _texts, state, {"input": texts}, given)
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


def _texts(state: ModelState, body: Body, given: Body) -> list[list[int]]:
    cutting = {"truncate": "truncate_prompt_tokens" in given}
    most = _limit(state, given)
    return [cut(state, ids, cutting, most) for ids in parse_texts(state, body, "input")]


async def pool(request: Request, state: ModelState) -> Response:
    """Return the pooled rows of texts, or rows of tokens if the server does not pool."""
    _check(state)
    body = await read_object(request)
    check_unsupported(body, ("messages", "data"))
    given = read_fields(body, POOLING)
    scores = state.params.reranking
    task = given.get("task")
    if task is not None and (task in ("classify", "score")) is not scores:
        raise invalid(f"Field 'task': this server does not serve {task!r} for its model")
    how = "none" if task == "token_embed" else "mean" if _is_embed(state, task) else ""
    size, most = given.get("dimensions"), state.model.hparams.n_embd_out
    if size is not None and (scores or size > most):
        raise invalid(f"Field 'dimensions': must be at most {most}, got {size}")
    prompts = await work.read(request, _texts, state, body, given)
    norm = state.params.normalize if given.get("use_activation", True) else -1
    found = await read_rows(request, state, prompts, norm if size is None else -1, how)
    if size is not None:
        found = [normalize_rows(rows[:, :size], norm) for rows in found]
    whole = how == "none" or (state.pooling == "none" and how == "")
    form = given.get("encoding_format", "float")
    raw = not given.get("use_activation", True)

    def write() -> Response:
        data = [
            {"index": i, "object": "pooling", "data": _data(state, rows, whole, form, raw)}
            for i, rows in iterate_checked([*enumerate(found)])
        ]
        return _write(state, body, "pool-", data, sum(map(len, prompts)))

    return await work.read(request, write)


def _is_embed(state: ModelState, task: str | None) -> bool:
    return task == "embed" and state.pooling == "none"


def _data(state: ModelState, rows: F32, whole: bool, form: str, raw: bool) -> Any:
    if state.params.reranking:
        rows = np.array([scale(state, rows[0], raw)], np.float32)
    if form == "base64":
        return base64.b64encode(rows.astype("<f4").tobytes()).decode()
    return rows.tolist() if whole else rows[0].tolist()


def _write(
    state: ModelState, body: Body, prefix: str, data: Sequence[Any], n_tokens: int
) -> Response:
    return as_long_json(
        {
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
    )
