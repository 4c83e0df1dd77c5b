"""instructor: schemas in two modes, partial objects as a stream, and calls of several models."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import instructor
from feature import KEY, MESSAGES, MODEL, OPENAI, QUESTIONS, check_text, check_weather, run
from openai import OpenAI
from schemas import Weather


def build(mode: instructor.Mode = instructor.Mode.TOOLS) -> Any:
    return instructor.from_openai(OpenAI(base_url=OPENAI, api_key=KEY), mode=mode)


def chat() -> str:
    found = build().create(model=MODEL, messages=MESSAGES, response_model=None)
    return check_text(found.choices[0].message.content)


def stream() -> str:
    parts = [*build().create_partial(Weather, model=MODEL, messages=QUESTIONS)]
    assert len(parts) > 1
    return check_weather(parts[-1])


def tools() -> str:
    client = build(instructor.Mode.PARALLEL_TOOLS)
    found = [*client.create(model=MODEL, messages=QUESTIONS, response_model=Iterable[Weather])]
    return check_weather(found[0])


def schema() -> str:
    for mode in (instructor.Mode.TOOLS, instructor.Mode.JSON_SCHEMA):
        found = build(mode).create(model=MODEL, messages=QUESTIONS, response_model=Weather)
        said = check_weather(found)
    return said


run("instructor", chat=chat, stream=stream, tools=tools, schema=schema)
