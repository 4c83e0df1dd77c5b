"""Route /rerank: scores of documents for a query."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.responses import Response

from llama_py.text.rerank import pair
from llama_py_server.routes import tei
from llama_py_server.routes.embeddings import embed_rows
from llama_py_server.wire import work
from llama_py_server.wire.body import Body, check_length, read_object, text, value
from llama_py_server.wire.errors import invalid
from llama_py_server.wire.responses import as_long_json

if TYPE_CHECKING:
    from llama_py_server.models.state import ModelState


async def rerank(request: Request, state: ModelState) -> Response:
    """Score how well documents answer a query, in the form of Jina; with `texts` in TEI's."""
    body = await read_object(request)
    if "texts" in body and "documents" not in body:
        return await tei.rerank(request, state)
    tei.check_reranks(state)
    if "query" not in body:
        raise invalid('"query" must be provided')
    if not isinstance(body["query"], str):
        raise invalid('"query" must be a string')
    documents = body.get("documents")
    if not isinstance(documents, list) or not documents:
        raise invalid('"documents" must be a non-empty string array')
    check_length("documents", len(documents))
    texts = [text(one, "text") if isinstance(one, dict) else one for one in documents]
    if not all(isinstance(one, str) for one in texts):
        raise invalid('"documents" must be a non-empty string array')
    query = body["query"]

    def pairs() -> list[list[int]]:
        return [pair(state.model, [query, t]) for t in texts]

    prompts = await work.read(request, pairs)
    scores = [float(rows[0][0]) for rows in await embed_rows(request, state, prompts, -1)]
    n = sum(map(len, prompts))
    return await work.read(request, _write_ranking, body, scores, n, state.name)


def _write_ranking(body: Body, scores: list[float], n_tokens: int, name: str) -> Response:
    found = [{"index": i, "relevance_score": score} for i, score in enumerate(scores)]
    order = sorted(found, key=lambda one: -one["relevance_score"])
    return as_long_json(
        {
            "model": text(body, "model", name),
            "object": "list",
            "usage": {"prompt_tokens": n_tokens, "total_tokens": n_tokens},
            "results": order[: max(value(body, "top_n", len(order)), 0)],
        }
    )
