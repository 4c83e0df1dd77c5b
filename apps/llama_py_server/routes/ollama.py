"""Routes of Ollama's API for responses and embeddings: /api/chat, /api/generate, /api/embed,
/api/embeddings, /api/version.

Each request becomes a request of chats or completions (`schema/from_ollama.py`).
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from llama_py.batch.prompts import n_cells
from llama_py.chat.go_template import takes_suffix
from llama_py.chat.messages import has_images
from llama_py.serving import TooLong
from llama_py.text.embed import normalize_rows
from llama_py_server.routes import leases
from llama_py_server.routes.chat import prompt_ids
from llama_py_server.routes.completions import read_prompts, read_suffix
from llama_py_server.routes.embeddings import read_rows
from llama_py_server.schema import from_ollama
from llama_py_server.schema.chat import read_chat
from llama_py_server.schema.completion import with_params
from llama_py_server.schema.constraints import select
from llama_py_server.schema.prompts import parse_prompt
from llama_py_server.stream.response import respond
from llama_py_server.stream.writers.ollama import OllamaRequest, OllamaWriter
from llama_py_server.wire import work
from llama_py_server.wire.access import check_origin
from llama_py_server.wire.body import Body, check_length, objects, read_object, text
from llama_py_server.wire.errors import invalid, not_supported
from llama_py_server.wire.responses import as_json, as_long_json

if TYPE_CHECKING:
    from llama_py.batch import F32
    from llama_py.serving import Request as EngineRequest
    from llama_py_server.models.model_pool import ModelEntry, ModelPool
    from llama_py_server.models.state import ModelState
    from llama_py_server.schema.completion import Delivery

VERSION = "0.12.6"  # of the Ollama with this API
Found = tuple["EngineRequest", "Delivery"]


async def version(request: Request, pool: ModelPool) -> Response:
    """Return the version of Ollama's API."""
    return as_json({"version": VERSION})


Handle = Callable[[Request], Awaitable[Response]]


def greet(port: int, page: Handle | None) -> Handle:
    """Return the handler of `/`: Ollama's text at its port, else the page."""

    async def handle(request: Request) -> Response:
        address = request.scope.get("server") or ("", None)
        if address[1] == port:
            return Response("Ollama is running", media_type="text/plain; charset=utf-8")
        if page is None:
            raise HTTPException(404)
        return await page(request)

    return handle


async def chat(request: Request, pool: ModelPool) -> Any:
    """Return the next message of a chat, in Ollama's format."""
    return await _answer(request, pool, _read_chat, "messages")


async def generate(request: Request, pool: ModelPool) -> Any:
    """Return a generated text, in Ollama's format."""
    return await _answer(request, pool, _read_generate, "prompt")


Read = Callable[["ModelState", Body], Found]


async def _answer(request: Request, pool: ModelPool, read: Read, field: str) -> Any:
    """Return the response to a request; without its field, load or unload the model."""
    began, is_chat = time.monotonic_ns(), field == "messages"
    fields = from_ollama.CHAT if is_chat else from_ollama.GENERATE
    body = select(await read_object(request), fields)
    entry, keep = await _find_entry(request, pool, body)
    name = text(body, "model") or entry.name
    if not body.get(field) and keep == 0:
        pool.models.unload_when_idle(entry.name)
        return as_json(OllamaRequest(name, is_chat, began, began).record("unload"))

    async def handle(http: Request, state: ModelState) -> Response:
        entry.keep = keep
        asked = OllamaRequest(name or state.name, is_chat, began, time.monotonic_ns())
        if not body.get(field):
            return as_json(asked.record("load"))
        given = body
        if is_chat and (before := entry.recipe.get("messages")):
            given = {**body, "messages": [*before, *objects(body, "messages")]}
        found, delivery = await work.read(http, read, state, given)
        return await respond(http, state, [found], delivery, OllamaWriter(state, asked))

    return await leases.respond(request, pool, handle)


async def _find_entry(
    request: Request, pool: ModelPool, body: Body
) -> tuple[ModelEntry, float | None]:
    """Return the model of a request, and its seconds in memory. HTTPError for an unknown model, and
    for pages that may not unload models."""
    keep = from_ollama.keep_alive(body)
    if keep is not None:
        check_origin(request, request.app.state.listen)
    return await leases.find_entry(request, pool), keep


def _read_chat(state: ModelState, body: Body) -> Found:
    return _read_messages(state, body, from_ollama.chat_body(body, state.engine.n_ctx))


def _read_generate(state: ModelState, body: Body) -> Found:
    n_ctx = state.engine.n_ctx
    if body.get("template"):
        raise invalid("'template' of a request is not supported; send a complete prompt with 'raw'")
    if body.get("raw") or body.get("suffix"):
        given = from_ollama.raw_body(body, n_ctx)
        read = read_prompts
        suffix = text(body, "suffix")
        if suffix and not body.get("raw") and takes_suffix(state.template.source):
            words = {"Prompt": text(body, "prompt"), "Suffix": suffix}
            given["prompt"] = state.template.render_variables(**words)
        elif suffix:
            read, given["suffix"] = read_suffix, suffix
        (found, *_), delivery = read(state, given)
        if from_ollama.wants_logprobs(body):
            found = with_params(found, logprobs=given["n_probs"])
        return _limit(state, body, found), delivery
    before = body.get("context") or []
    if before and body.get("images"):
        raise invalid("'context' cannot be combined with images")
    found, delivery = _read_messages(state, body, from_ollama.generate_body(body, n_ctx))
    if before:
        if not isinstance(before, list) or not all(type(id) is int for id in before):
            raise invalid("'context' must be an array of tokens")
        bos = state.tokenizer.special_ids.get("bos")
        added = [*found.prompt][1:] if [*found.prompt][:1] == [bos] else found.prompt
        whole = [*parse_prompt(state.tokenizer, before), *added]
        found = _limit(state, body, replace(found, prompt=whole))
    return found, delivery


def _read_messages(state: ModelState, body: Body, given: Body) -> Found:
    """Return the request of a chat; like in Ollama, the oldest messages are omitted if the context
    is too short, but not system messages."""
    _check_model(state, body, given)
    n_ctx, messages = from_ollama.num_ctx(body, state.engine.n_ctx), given["messages"]
    found, n = _try_messages(state, given, n_ctx)
    if n >= n_ctx and body.get("truncate") is not False:
        starts = [i for i, one in enumerate(messages) if i and one["role"] == "user"]
        low, high = 0, len(starts) - 1
        while low <= high:
            middle = (low + high) // 2
            kept = _drop_messages(messages, starts[middle])
            shorter, n = _try_messages(state, {**given, "messages": kept}, n_ctx)
            if n < n_ctx or low == high:
                found = shorter
            low, high = (low, middle - 1) if n < n_ctx else (middle + 1, high)
    if found is None:
        raise TooLong(n, n_ctx)
    return _limit(state, body, found[0]), found[1]


def _drop_messages(messages: list[Body], start: int) -> list[Body]:
    return [one for one in messages[:start] if one["role"] == "system"] + messages[start:]


def _try_messages(state: ModelState, given: Body, n_ctx: int) -> tuple[Found | None, int]:
    """Return the request, and the number of its prompt's tokens; None for images that are too
    large."""
    chat, request, delivery = read_chat(state, given)
    try:
        ids = prompt_ids(state, chat)
    except TooLong as e:
        return None, max(e.n_prompt, n_ctx)
    return (replace(request, prompt=ids), delivery), n_cells(ids)


def _check_model(state: ModelState, body: Body, given: Body) -> None:
    """Raise HTTPError for images and reasoning that the model does not support."""
    name = text(body, "model") or state.name
    if not state.sees and has_images(given["messages"]):
        raise invalid(f'"{name}" does not support vision')
    if body.get("think") and state.template.tags({}) is None:
        raise invalid(f'"{name}" does not support thinking')


def _limit(state: ModelState, body: Body, request: EngineRequest) -> EngineRequest:
    """Return a request within `num_ctx`: a long text loses its middle, like in Ollama."""
    n_ctx = from_ollama.num_ctx(body, state.engine.n_ctx)
    ids, params = request.prompt, request.params
    if n_cells(ids) >= n_ctx and type(ids) is list and body.get("truncate") is not False:
        first = min(max(params.n_keep, 1), n_ctx - 1)
        ids = [*ids[:first], *ids[len(ids) - (n_ctx - 1 - first) :]]
    if n_ctx < state.engine.n_ctx:
        left = max(n_ctx - n_cells(ids), 1)
        most = left if params.max_tokens < 0 else min(params.max_tokens, left)
        request = with_params(request, max_tokens=most)
    return replace(request, prompt=ids)


async def embed(request: Request, pool: ModelPool) -> Any:
    """Return one embedding of each text, of length 1."""
    body = select(await read_object(request), from_ollama.EMBED)
    given = body.get("input")
    if not isinstance(given, str | list | None):
        raise invalid("invalid input type")
    texts = [given] if isinstance(given, str) and given else given or []
    if not all(isinstance(one, str) for one in texts):
        raise invalid("invalid input type")
    check_length("input", len(texts))

    def write(asked: OllamaRequest, rows: Sequence[F32], n_tokens: int) -> Response:
        vectors = [row[0].tolist() for row in rows]
        body = {"model": asked.name, "embeddings": vectors, **asked.durations()}
        return as_long_json(body | {"prompt_eval_count": n_tokens})

    return await _embed(request, pool, body, texts, write)


async def embeddings(request: Request, pool: ModelPool) -> Any:
    """Return the embedding of one text: the older route."""
    body = select(await read_object(request), from_ollama.EMBEDDINGS)
    prompt = body.get("prompt")
    if not isinstance(prompt, str | None):
        raise invalid("'prompt' must be a string")

    def write(asked: OllamaRequest, rows: Sequence[F32], n_tokens: int) -> Response:
        return as_json({"embedding": rows[0][0].tolist() if rows else []})

    return await _embed(request, pool, body, [prompt] if prompt else [], write)


Write = Callable[[OllamaRequest, Sequence["F32"], int], Response]


async def _embed(
    request: Request, pool: ModelPool, body: Body, texts: Sequence[str], write: Write
) -> Any:
    began = time.monotonic_ns()
    entry, keep = await _find_entry(request, pool, body)

    async def handle(http: Request, state: ModelState) -> Response:
        entry.keep = keep
        asked = OllamaRequest(text(body, "model") or state.name, False, began, time.monotonic_ns())
        if not (state.params.embedding or state.options.listen.ollama):
            raise not_supported("embeddings need a server with --embeddings or --ollama")
        if state.pooling in ("none", "rank"):
            raise invalid(f"embeddings need another --pooling than {state.pooling}")
        size = body.get("dimensions")
        if size is not None and not (type(size) is int and size >= 0):
            raise invalid(f"'dimensions' must be a positive integer, got {size!r}")
        prompts = await work.read(http, _tokens, state, texts, body)
        rows = await read_rows(http, state, prompts, 2) if prompts else []
        if size:
            rows = [normalize_rows(row[:, :size], 2) for row in rows]
        return await work.read(http, write, asked, rows, sum(map(len, prompts)))

    return await leases.respond(request, pool, handle)


def _tokens(state: ModelState, texts: Sequence[str], body: Body) -> list[list[int]]:
    """Return the tokens of texts; a text that is too long is cut, unless `truncate` is false."""
    most = min(from_ollama.num_ctx(body, state.engine.n_ctx), state.engine.n_text)
    found = []
    for one in texts:
        ids = parse_prompt(state.tokenizer, one)
        if len(ids) > most:
            if body.get("truncate") is False:
                raise invalid("the input length exceeds the context length")
            end = ids[-1:] if ids[-1] in state.tokenizer.special_ids.values() else []
            ids = [*ids[: most - len(end)], *end]
        if not ids:
            raise invalid("an input is empty")
        found.append(ids)
    return found
