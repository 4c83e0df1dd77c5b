"""anthropic (Python). Its API has no embeddings and no log probabilities."""

from __future__ import annotations

from typing import Any

from anthropic import Anthropic
from feature import (
    KEY,
    MESSAGES,
    MODEL,
    PARAMETERS,
    QUESTIONS,
    URL,
    check_call,
    check_parts,
    check_text,
    check_weather,
    run,
    weather,
)
from schemas import Weather

messages: Any = Anthropic(base_url=URL, api_key=KEY).messages
HOW = {"model": MODEL, "max_tokens": 100}
TOOLS = [{"name": "weather", "description": "Weather of a place.", "input_schema": PARAMETERS}]


def chat() -> str:
    return check_text(messages.create(**HOW, messages=MESSAGES).content[0].text)


def stream() -> str:
    with messages.stream(**HOW, messages=MESSAGES) as events:
        return check_parts(events.text_stream)


def tools() -> str:
    first = messages.create(**HOW, messages=QUESTIONS, tools=TOOLS).content
    call = next(block for block in first if block.type == "tool_use")
    result = {"type": "tool_result", "tool_use_id": call.id, "content": weather(**call.input)}
    said = [{"role": "assistant", "content": first}, {"role": "user", "content": [result]}]
    return check_call(
        messages.create(**HOW, messages=[*QUESTIONS, *said], tools=TOOLS).content[0].text
    )


def schema() -> str:
    found = messages.parse(**HOW, messages=QUESTIONS, output_format=Weather)
    return check_weather(found.parsed_output)


run("anthropic", chat=chat, stream=stream, tools=tools, schema=schema)
