"""litellm: the provider `openai` with a base URL."""

from __future__ import annotations

import json
from typing import Any

import litellm
from feature import (
    KEY,
    MESSAGES,
    OPENAI,
    QUESTIONS,
    TEXTS,
    TOOL,
    check_call,
    check_logprobs,
    check_parts,
    check_text,
    check_vectors,
    check_weather,
    run,
    weather,
)
from schemas import Weather

HOW: Any = {"model": "openai/demo", "api_base": OPENAI, "api_key": KEY}


def ask(messages: Any = MESSAGES, **how: Any) -> Any:
    return litellm.completion(messages=messages, **HOW, **how)


def chat() -> str:
    return check_text(ask().choices[0].message.content)


def stream() -> str:
    return check_parts(chunk.choices[0].delta.content for chunk in ask(stream=True))


def tools() -> str:
    first = ask(QUESTIONS, tools=[TOOL]).choices[0].message
    call = first.tool_calls[0]
    said = weather(**json.loads(call.function.arguments))
    result = {"role": "tool", "tool_call_id": call.id, "content": said}
    last = ask([*QUESTIONS, first, result], tools=[TOOL])
    return check_call(last.choices[0].message.content)


def schema() -> str:
    return check_weather(ask(QUESTIONS, response_format=Weather).choices[0].message.content)


def embeddings() -> str:
    rows = litellm.embedding(input=TEXTS, **HOW).data
    return check_vectors([row["embedding"] for row in rows])


def logprobs() -> str:
    found = ask(logprobs=True, top_logprobs=2).choices[0].logprobs.content
    return check_logprobs(one.logprob for one in found)


run(
    "litellm", chat=chat, stream=stream, tools=tools, schema=schema,
    embeddings=embeddings, logprobs=logprobs,
)  # fmt: skip
