"""Route /v1/systemone: probabilities of the options of typed questions about a state."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from llama_py.support.stopping import iterate_checked
from llama_py.text.decide import Question
from llama_py_server.schema.prompts import clean_text
from llama_py_server.schema.questions import parse_questions
from llama_py_server.wire import work
from llama_py_server.wire.body import Body, read_object
from llama_py_server.wire.clients import unless_gone
from llama_py_server.wire.responses import as_long_json
from llama_py_server.wire.usage import CLIENT

if TYPE_CHECKING:
    from llama_py.decoding.scores import Score
    from llama_py_server.models.state import ModelState


class TokenizedQuestion(NamedTuple):
    """A question, and the tokens of its prompt and of its labels."""

    question: Question
    prompt: list[int]
    labels: list[list[int]]


async def systemone(request: Request, state: ModelState) -> Response:
    """Answer questions in TypeSafe's format; no text is generated."""
    body = await read_object(request)
    asked = await work.read(request, _read, state, body)
    n = sum(len(one.prompt) for one in asked)
    if (client := CLIENT.get()) is not None:
        client.count(n)
    scores = await unless_gone(request, _score(state, asked))
    if scores is None:
        raise ClientDisconnect
    return await work.read(request, _write, state, asked, scores, n)


def _read(state: ModelState, body: Body) -> list[TokenizedQuestion]:
    given, questions = parse_questions(body)
    decider, asked = state.decider, []
    for one in iterate_checked(questions):
        text = clean_text(decider.render(given, one))
        asked.append(TokenizedQuestion(one, decider.tokenize(text), decider.labels(one, text)))
    return asked


async def _score(
    state: ModelState, asked: Sequence[TokenizedQuestion]
) -> list[list[tuple[Score, ...]]]:
    """Score the labels of all questions, at most one question per slot at a time."""
    free, client = asyncio.Semaphore(state.engine.n_slots), CLIENT.get()
    options: dict[str, Any] = {
        "client": "" if client is None else client.name,
        "cache_prompt": state.params.cache_prompt,
        "t_max": float(state.options.listen.timeout),
    }

    async def score(one: TokenizedQuestion) -> list[tuple[Score, ...]]:
        async with free:
            return await asyncio.wrap_future(state.engine.score(one.prompt, one.labels, **options))

    tasks = [asyncio.ensure_future(score(one)) for one in asked]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()


def _write(
    state: ModelState,
    asked: Sequence[TokenizedQuestion],
    scores: list[list[tuple[Score, ...]]],
    n: int,
) -> Response:
    answers = {}
    for one, labels in zip(asked, scores, strict=True):
        logprobs = [sum(score.logprob or 0.0 for score in label) for label in labels]
        answers[one.question.id] = state.decider.answer(one.question, logprobs)
    usage = {"input_tokens": n, "output_tokens": 0}
    return as_long_json({"model": state.name, "answers": answers, "usage": usage})
