"""Route /v1/systemone: probabilities of the options of typed questions about a state."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from llama_py.batch.prompts import n_cells
from llama_py.support.stopping import iterate_checked
from llama_py.text.decide import Question
from llama_py.text.decision_rows import RowPrompt
from llama_py_server.schema.prompts import clean_text
from llama_py_server.schema.questions import parse_questions
from llama_py_server.wire import work
from llama_py_server.wire.body import Body, read_object
from llama_py_server.wire.clients import unless_gone
from llama_py_server.wire.responses import as_long_json
from llama_py_server.wire.usage import CLIENT

if TYPE_CHECKING:
    from llama_py_server.models.state import ModelState


class TokenizedPrompt(NamedTuple):
    """Tokens of a prompt, and the forms of each label."""

    tokens: Sequence[int]
    labels: list[list[list[int]]]


class TokenizedQuestion(NamedTuple):
    """A question and its prompts."""

    question: Question
    prompts: list[TokenizedPrompt]


async def systemone(request: Request, state: ModelState) -> Response:
    """Answer questions in TypeSafe's format; no text is generated."""
    body = await read_object(request)
    if state.decider.type.rows:
        return await _decide_by_rows(request, state, body)
    asked = await work.read(request, _read, state, body)
    n = sum(n_cells(prompt.tokens) for one in asked for prompt in one.prompts)
    if (client := CLIENT.get()) is not None:
        client.count(n)
    scores = await unless_gone(request, _score(state, asked))
    if scores is None:
        raise ClientDisconnect
    return await work.read(request, _write, state, asked, scores, n)


async def _decide_by_rows(request: Request, state: ModelState, body: Body) -> Response:
    """Answer questions by rows of embeddings."""
    prompts = await work.read(request, _read_rows, state, body)
    n = sum(len(prompt.tokens) for prompt in prompts)
    if (client := CLIENT.get()) is not None:
        client.count(n)
    found = work.run(work.Work.DECODE, state.row_scorer.score, prompts)
    scores = await unless_gone(request, found)
    if scores is None:
        raise ClientDisconnect
    asked = [TokenizedQuestion(one, []) for prompt in prompts for one in prompt.questions]
    return await work.read(request, _write, state, asked, [[one] for one in scores], n)


def _read_rows(state: ModelState, body: Body) -> list[RowPrompt]:
    given = parse_questions(body, state.decider, state.sees)
    return state.decider.row_prompts(given.state, given.questions)


def _read(state: ModelState, body: Body) -> list[TokenizedQuestion]:
    decider, asked = state.decider, []
    given = parse_questions(body, decider, state.sees)
    for one in iterate_checked(given.questions):
        prompts = []
        for backward in decider.orders(one):
            n = len(given.images)
            text = clean_text(decider.render(given.state, one, given.questions, n, backward))
            tokens = state.see(text, given.images) if n else decider.tokenize(text)
            prompts.append(TokenizedPrompt(tokens, decider.labels(one, text)))
        asked.append(TokenizedQuestion(one, prompts))
    return asked


async def _score(state: ModelState, asked: Sequence[TokenizedQuestion]) -> list[list[list[float]]]:
    """Score the labels of all questions, at most one prompt per slot at a time.
    -> by question and prompt, the log probability of each label's likeliest form"""
    free, client = asyncio.Semaphore(state.engine.n_slots), CLIENT.get()
    options: dict[str, Any] = {
        "client": "" if client is None else client.name,
        "cache_prompt": state.params.cache_prompt,
        "t_max": float(state.options.listen.timeout),
    }

    async def score(one: TokenizedPrompt) -> list[float]:
        forms = [form for label in one.labels for form in label]
        async with free:
            found = await asyncio.wrap_future(state.engine.score(one.tokens, forms, **options))
        logprobs = iter(sum(x.logprob or 0.0 for x in form) for form in found)
        return [max(islice(logprobs, len(label))) for label in one.labels]

    tasks = [asyncio.ensure_future(score(one)) for question in asked for one in question.prompts]
    try:
        scores = iter(await asyncio.gather(*tasks))
    finally:
        for task in tasks:
            task.cancel()
    return [[*islice(scores, len(question.prompts))] for question in asked]


def _write(
    state: ModelState, asked: Sequence[TokenizedQuestion], scores: list[list[list[float]]], n: int
) -> Response:
    pairs = zip(asked, scores, strict=True)
    answers = {one.question.id: state.decider.answer(one.question, found) for one, found in pairs}
    usage = {"input_tokens": n, "output_tokens": 0}
    return as_long_json({"model": state.name, "answers": answers, "usage": usage})
