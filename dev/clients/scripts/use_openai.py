"""openai (Python): chat completions and embeddings."""

from __future__ import annotations

import json
from typing import Any

from feature import (
    KEY,
    MESSAGES,
    MODEL,
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
from openai import OpenAI
from schemas import Weather

client = OpenAI(base_url=OPENAI, api_key=KEY)


def create(messages: Any = MESSAGES, **how: Any) -> Any:
    return client.chat.completions.create(model=MODEL, messages=messages, **how)


def chat() -> str:
    return check_text(create().choices[0].message.content)


def stream() -> str:
    return check_parts(chunk.choices[0].delta.content for chunk in create(stream=True))


def tools() -> str:
    first = create(QUESTIONS, tools=[TOOL]).choices[0].message
    call = first.tool_calls[0]
    said = weather(**json.loads(call.function.arguments))
    result = {"role": "tool", "tool_call_id": call.id, "content": said}
    last = create([*QUESTIONS, first, result], tools=[TOOL])
    return check_call(last.choices[0].message.content)


def schema() -> str:
    how: Any = {"model": MODEL, "messages": QUESTIONS, "response_format": Weather}
    return check_weather(client.chat.completions.parse(**how).choices[0].message.parsed)


def embeddings() -> str:
    rows = client.embeddings.create(model=MODEL, input=TEXTS).data
    return check_vectors([row.embedding for row in rows])


def logprobs() -> str:
    found = create(logprobs=True, top_logprobs=2).choices[0].logprobs.content
    assert all(len(one.top_logprobs) == 2 for one in found)
    return check_logprobs(one.logprob for one in found)


run(
    "openai", chat=chat, stream=stream, tools=tools, schema=schema, embeddings=embeddings,
    logprobs=logprobs,
)  # fmt: skip
