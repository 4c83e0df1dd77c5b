"""openai (Python): the Responses API."""

from __future__ import annotations

import json
from typing import Any

from feature import (
    ASK,
    FUNCTION,
    KEY,
    MODEL,
    OPENAI,
    QUESTION,
    check_call,
    check_logprobs,
    check_parts,
    check_text,
    check_weather,
    run,
    weather,
)
from openai import OpenAI
from schemas import Weather

respond: Any = OpenAI(base_url=OPENAI, api_key=KEY).responses
TOOLS = [{"type": "function", **FUNCTION, "strict": False}]


def chat() -> str:
    return check_text(respond.create(model=MODEL, input=ASK).output_text)


def stream() -> str:
    with respond.stream(model=MODEL, input=ASK) as events:
        return check_parts(
            event.delta for event in events if event.type == "response.output_text.delta"
        )


def tools() -> str:
    asked: list[Any] = [{"role": "user", "content": QUESTION}]
    first = respond.create(model=MODEL, input=asked, tools=TOOLS)
    call = next(item for item in first.output if item.type == "function_call")
    said = weather(**json.loads(call.arguments))
    result = {"type": "function_call_output", "call_id": call.call_id, "output": said}
    last = respond.create(model=MODEL, input=[*asked, *first.output, result], tools=TOOLS)
    return check_call(last.output_text)


def schema() -> str:
    found = respond.parse(model=MODEL, input=QUESTION, text_format=Weather)
    return check_weather(found.output_parsed)


def logprobs() -> str:
    include = ["message.output_text.logprobs"]
    found = respond.create(model=MODEL, input=ASK, include=include, top_logprobs=2)
    parts = [part for item in found.output if item.type == "message" for part in item.content]
    return check_logprobs(one.logprob for part in parts for one in part.logprobs)


run("openai", chat=chat, stream=stream, tools=tools, schema=schema, logprobs=logprobs)
