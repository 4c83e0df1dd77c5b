"""outlines: from_openai, and from_vllm for a regular expression. It has types of output only."""

from __future__ import annotations

import re
from typing import Any

import outlines
from feature import ASK, KEY, MODEL, OPENAI, QUESTION, check_parts, check_text, check_weather, run
from openai import OpenAI
from schemas import Weather

client = OpenAI(base_url=OPENAI, api_key=KEY)
model: Any = outlines.from_openai(client, MODEL)


def chat() -> str:
    return check_text(model(ASK))


def stream() -> str:
    return check_parts(model.stream(ASK))


def schema() -> str:
    """A class, and an expression, which OpenAI's API does not have."""
    date = outlines.from_vllm(client, MODEL)(ASK, outlines.regex("[0-9]{4}-[0-9]{2}"))
    assert re.fullmatch("[0-9]{4}-[0-9]{2}", date), date
    return check_weather(model(QUESTION, Weather))


run("outlines", chat=chat, stream=stream, schema=schema)
