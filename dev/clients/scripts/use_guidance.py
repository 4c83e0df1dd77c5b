"""guidance: models.OpenAI, and VLLMModel for a grammar. It hides log probabilities."""

from __future__ import annotations

import re
from typing import Any

import guidance
from feature import (
    ASK,
    KEY,
    MODEL,
    OPENAI,
    QUESTION,
    check_call,
    check_parts,
    check_text,
    check_weather,
    run,
    weather,
)
from guidance import assistant, gen, user
from schemas import Weather


def build(text: str, kind: Any = guidance.models.OpenAI) -> Any:
    model = kind(MODEL, api_key=KEY, base_url=OPENAI, echo=False)
    with user():
        model += text
    return model


@guidance.guidance
def answer(model: Any) -> Any:
    with assistant():
        model += gen("answer")
    return model


def chat() -> str:
    return check_text((build(ASK) + answer())["answer"])


def stream() -> str:
    return check_parts(dict.fromkeys(str(part) for part in build(ASK).stream() + answer()))


def tools() -> str:
    model = build(QUESTION)
    with assistant():
        model += gen(tools=[weather])
    return check_call((model + answer())["answer"])


def schema() -> str:
    """A class, and an expression, which needs vLLM's fields."""
    model = build(ASK, guidance.models.experimental.VLLMModel)
    with assistant():
        model += gen("date", regex="[0-9]{4}-[0-9]{2}")
    assert re.fullmatch("[0-9]{4}-[0-9]{2}", model["date"]), model["date"]
    model = build(QUESTION)
    with assistant():
        model += guidance.json("answer", schema=Weather)
    return check_weather(model["answer"])


run("guidance", chat=chat, stream=stream, tools=tools, schema=schema)
