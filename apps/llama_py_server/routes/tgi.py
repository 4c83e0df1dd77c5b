"""Routes of text-generation-inference (TGI): /generate, /generate_stream; /info; and POST /, which
also serves requests of text-embeddings-inference."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.responses import Response

from ggml_py.machine.release import VERSION
from llama_py.text.rerank import labels
from llama_py_server.routes import rerank, tei
from llama_py_server.schema.tgi import parse_generation
from llama_py_server.stream.response import respond
from llama_py_server.stream.writers.tgi import GenerateWriter
from llama_py_server.wire import work
from llama_py_server.wire.body import MAX_ITEMS, Body, read_object, value
from llama_py_server.wire.responses import as_json, as_tei_error

if TYPE_CHECKING:
    from llama_py_server.models.state import ModelState


async def generate(request: Request, state: ModelState) -> Response:
    """Return a generated text."""
    return await _generate(request, state, await read_object(request), False)


async def generate_stream(request: Request, state: ModelState) -> Response:
    """Return a stream with an event per token."""
    return await _generate(request, state, await read_object(request), True)


async def _generate(
    request: Request, state: ModelState, body: Body, stream: bool, as_list: bool = False
) -> Response:
    asked, delivery, wanted = await work.read(request, parse_generation, state, body, stream)
    writer = GenerateWriter(state, wanted, as_list)
    return await respond(request, state, [asked], delivery, writer)


async def root(request: Request, state: ModelState) -> Response:
    """Return a generated text, embeddings, similarities, scores or classes, depending on the
    fields of the request."""
    body = await read_object(request)
    p, inputs = state.params, body.get("inputs")
    generates = "parameters" in body or "stream" in body
    if p.reranking or p.embedding or isinstance(inputs, dict):
        request.state.write_error = as_tei_error
    if p.reranking:
        return await (rerank.rerank if "query" in body else tei.predict)(request, state)
    if isinstance(inputs, dict):
        return await tei.similarity(request, state)
    if p.embedding and not (generates and isinstance(inputs, str)):
        return await tei.embed(request, state)
    request.state.write_error = None
    return await _generate(request, state, body, value(body, "stream", False), as_list=True)


async def info(request: Request, state: ModelState) -> Response:
    """Return the model and its limits."""
    engine, options = state.engine, state.options
    found: dict[str, Any] = {
        "model_id": state.name,
        "model_sha": None,
        "model_pipeline_tag": _task(state),
        "max_concurrent_requests": options.listen.max_connections,
        "max_client_batch_size": MAX_ITEMS,
        "router": "llama-py",
        "version": VERSION,
        "sha": None,
        "docker_label": None,
        "max_best_of": 1,
        "max_stop_sequences": 256,
        "max_input_tokens": max(engine.n_ctx - 1, 1),
        "max_total_tokens": engine.n_ctx,
        "validation_workers": work.Work.SHORT.n_threads,
    }
    kind = _type(state)
    if kind is not None:
        found |= {
            "model_dtype": "float32",
            "served_model_name": state.name,
            "model_type": kind,
            "max_input_length": engine.n_text,
            "max_batch_tokens": engine.n_text,
            "max_batch_requests": None,
            "auto_truncate": False,
            "tokenization_workers": work.Work.SHORT.n_threads,
        }
    return as_json(found)


def _task(state: ModelState) -> str:
    if state.params.reranking:
        return "text-classification"
    return "feature-extraction" if state.params.embedding else "text-generation"


def _type(state: ModelState) -> dict[str, Any] | None:
    """Return the kind of the model in TEI's form; None if the server only generates."""
    if state.params.embedding:
        return {"embedding": {"pooling": state.pooling}}
    if not state.params.reranking:
        return None
    names = labels(state.model)
    ids = {str(i): name for i, name in enumerate(names)}
    kind = "reranker" if len(names) == 1 else "classifier"
    return {kind: {"id2label": ids, "label2id": {name: i for i, name in enumerate(names)}}}
