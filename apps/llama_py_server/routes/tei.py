"""Routes of text-embeddings-inference (TEI): /embed, /embed_all, /similarity, /predict, and a form
of /rerank."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from starlette.requests import Request
from starlette.responses import Response

from llama_py.support.stopping import iterate_checked
from llama_py.text.embed import normalize_rows
from llama_py.text.rerank import labels, pair
from llama_py_server.routes.embeddings import check_embeds, parse_texts, read_rows
from llama_py_server.schema.fields import RequestField, absent, choice, flag, integer, read_fields
from llama_py_server.schema.prompts import clean_text
from llama_py_server.wire import work
from llama_py_server.wire.body import Body, check_length, inner, read_object
from llama_py_server.wire.errors import invalid, not_supported
from llama_py_server.wire.responses import as_long_json, as_tei_error

if TYPE_CHECKING:
    from llama_py.batch import F32
    from llama_py_server.models.state import ModelState

TRUNCATE: dict[str, RequestField] = {
    "truncate": flag(),
    "truncation_direction": choice("Left", "Right", "left", "right"),
}
TEXTS: dict[str, RequestField] = {
    **TRUNCATE,
    "prompt_name": absent("a GGUF file has no named prompts; write the prompt into the text"),
}
EMBED: dict[str, RequestField] = {**TEXTS, "normalize": flag(), "dimensions": integer(1, 2**31 - 1)}
RERANK: dict[str, RequestField] = {**TRUNCATE, "raw_scores": flag(), "return_text": flag()}
PREDICT: dict[str, RequestField] = {**TRUNCATE, "raw_scores": flag()}


def check_reranks(state: ModelState) -> None:
    """Raise HTTPError if the server does not score texts."""
    if not state.params.reranking:
        raise not_supported("This server does not support reranking. Start it with `--reranking`")


async def embed(request: Request, state: ModelState) -> Response:
    """Return one vector per text."""
    check_embeds(state)
    if state.pooling == "none":
        raise invalid(
            "the server does not pool vectors (--pooling); use /embed_all for vectors of tokens"
        )
    body = await read_object(request)
    given = read_fields(body, EMBED)
    size, most = given.get("dimensions"), state.model.hparams.n_embd_out
    if size is not None and size > most:
        raise invalid(f"Field 'dimensions': the vectors have {most} values, got {size}")
    prompts = await work.read(request, _inputs, state, body, given)
    norm = 2 if given.get("normalize", True) else -1
    found = await read_rows(request, state, prompts, norm if size is None else -1)
    rows = [row[0] if size is None else normalize_rows(row[:, :size], norm)[0] for row in found]
    return await work.read(request, _write_rows, rows)


async def embed_all(request: Request, state: ModelState) -> Response:
    """Return one vector per token of each text."""
    check_embeds(state)
    body = await read_object(request)
    prompts = await work.read(request, _inputs, state, body, read_fields(body, TEXTS))
    return await work.read(
        request, _write_rows, await read_rows(request, state, prompts, -1, "none")
    )


def _write_rows(rows: Sequence[F32]) -> Response:
    return as_long_json([row.tolist() for row in iterate_checked(rows)])


def _inputs(state: ModelState, body: Body, given: Body) -> list[list[int]]:
    return [cut(state, ids, given) for ids in parse_texts(state, body, "inputs")]


def cut(
    state: ModelState, ids: list[int], given: Body, most: int | None = None, special: bool = True
) -> list[int]:
    """Return the ids that fit if the request has `truncate`, with the special tokens at both ends.

    Args:
        state: The model.
        ids: Tokens of a text.
        given: Fields of TRUNCATE.
        most: Maximum number of ids; None: the server's limit.
        special: The ends are special tokens.
    """
    most = state.engine.n_text if most is None else most
    if len(ids) <= most or not given.get("truncate", False):
        return ids
    begin, end = _count_special(state) if special else (0, 0)
    if most <= begin + end:
        return ids[:most]
    body = ids[begin : len(ids) - end]
    n, left = most - begin - end, given.get("truncation_direction", "").lower() == "left"
    return [*ids[:begin], *(body[-n:] if left else body[:n]), *ids[len(ids) - end :]]


def _count_special(state: ModelState) -> tuple[int, int]:
    """Return the numbers of special tokens before and after a text."""
    with_special, text = (state.tokenizer.tokenize("a", special) for special in (True, False))
    n = len(with_special) - len(text)
    begin = next((i for i in range(n + 1) if with_special[i : i + len(text)] == text), 0)
    return begin, n - begin


def cut_pair(
    state: ModelState, parts: Sequence[str], given: Body, most: int | None = None
) -> list[int]:
    """Return the ids of a query and a text; with `truncate` the text is cut until it fits."""
    t = state.tokenizer
    most = state.engine.n_text if most is None else most
    parts = [clean_text(part) for part in parts]
    ids = pair(state.model, parts)
    left = given.get("truncation_direction", "").lower() == "left"
    while len(ids) > most and given.get("truncate", False):
        rest = t.tokenize(parts[-1], False, False)
        n = len(rest) - (len(ids) - most)
        if n <= 0:
            break
        parts[-1] = t.detokenize(rest[-n:] if left else rest[:n])
        ids = pair(state.model, parts)
    return ids


async def similarity(request: Request, state: ModelState) -> Response:
    """Return the cosines between a sentence and others."""
    check_embeds(state)
    body = await read_object(request)
    asked = inner(body, "inputs")
    source, others = asked.get("source_sentence"), asked.get("sentences")
    if not isinstance(source, str):
        raise invalid('"inputs.source_sentence" must be a string')
    texts = _strings("inputs.sentences", others)
    given = read_fields(inner(body, "parameters"), TEXTS)
    both = {"inputs": [source, *texts]}
    prompts = await work.read(request, _inputs, state, both, given)
    found = np.concatenate(await read_rows(request, state, prompts, 2, _choose_pooling(state)))
    return await work.read(request, as_long_json, (found[1:] @ found[0]).tolist())


def _choose_pooling(state: ModelState) -> str:
    """Return the pooling of one vector per text."""
    return "mean" if state.pooling == "none" else state.pooling


def _strings(name: str, given: Any) -> list[str]:
    if not isinstance(given, list) or not given or not all(isinstance(one, str) for one in given):
        raise invalid(f'"{name}" must be a non-empty array of strings')
    check_length(name, len(given))
    return given


async def rerank(request: Request, state: ModelState) -> Response:
    """Score how well texts answer a query; the best is the first."""
    request.state.write_error = as_tei_error
    check_reranks(state)
    body = await read_object(request)
    if not isinstance(body.get("query"), str):
        raise invalid('"query" must be a string')
    texts, given = _strings("texts", body.get("texts")), read_fields(body, RERANK)

    def pairs() -> list[list[int]]:
        return [cut_pair(state, [body["query"], text], given) for text in iterate_checked(texts)]

    found = await read_rows(request, state, await work.read(request, pairs), -1)
    raw = given.get("raw_scores", False)
    scores = [scale(state, row[0], raw)[0] for row in found]
    order = sorted(range(len(scores)), key=lambda i: -scores[i])
    most = body.get("top_n")  # of llama-server
    order = order[: max(most, 0)] if type(most) is int else order
    with_text = given.get("return_text", False)
    ranked = [
        {"index": i, **({"text": texts[i]} if with_text else {}), "score": scores[i]} for i in order
    ]
    return await work.read(request, as_long_json, ranked)


def scale(state: ModelState, row: F32, raw: bool) -> list[float]:
    """Return the scores of a text, as probabilities unless `raw`: of one class by the logistic
    function, of several together."""
    classifier = state.model.architecture.classifier
    if raw or (classifier is not None and classifier.after is not None):  # it has its function
        return [float(x) for x in row]
    if len(row) == 1:
        return [1 / (1 + math.exp(-max(float(row[0]), -700.0)))]
    found = np.exp(row.astype(np.float64) - row.max())
    return [float(x) for x in found / found.sum()]


async def predict(request: Request, state: ModelState) -> Response:
    """Return the classes of texts, or of pairs of texts, with their scores; the best is first."""
    check_reranks(state)
    body = await read_object(request)
    given = read_fields(body, PREDICT)
    several, asked = _sequences(body.get("inputs"))

    def prompts() -> list[list[int]]:
        return [cut_pair(state, parts, given) for parts in iterate_checked(asked)]

    found = await read_rows(request, state, await work.read(request, prompts), -1)
    names, raw = labels(state.model), given.get("raw_scores", False)
    classes = []
    for row in found:
        both = zip(names, scale(state, row[0], raw), strict=False)
        ranked = sorted(both, key=lambda one: -one[1])
        classes.append([{"score": score, "label": name} for name, score in ranked])
    return await work.read(request, as_long_json, classes if several else classes[0])


def _sequences(given: Any) -> tuple[bool, list[list[str]]]:
    """Return texts or pairs of texts, and True if they are in a list."""
    if isinstance(given, str):
        return False, [[given]]
    if isinstance(given, list) and given and all(isinstance(one, str) for one in given):
        if len(given) <= 2:
            return False, [given]
    elif isinstance(given, list) and given:
        check_length("inputs", len(given))
        if all(
            isinstance(one, list) and 1 <= len(one) <= 2 and all(isinstance(t, str) for t in one)
            for one in given
        ):
            return True, given
    raise invalid('"inputs" must be a string, a pair of strings, or an array of [text] and pairs')
