"""mirascope: the provider `openai:completions`. It has no embeddings and no log probabilities."""

from __future__ import annotations

from typing import Any

from feature import (
    ASK,
    KEY,
    OPENAI,
    QUESTION,
    check_call,
    check_parts,
    check_text,
    check_weather,
    run,
    weather,
)
from mirascope import llm
from schemas import Weather

llm.register_provider("openai:completions", "openai/", api_key=KEY, base_url=OPENAI)


def build(text: str = ASK, **how: Any) -> Any:
    return llm.call("openai/demo", **how)(lambda: text)


def chat() -> str:
    return check_text(build()().text())


def stream() -> str:
    return check_parts(build().stream().text_stream())


def tools() -> str:
    first = build(QUESTION, tools=[llm.tool(weather)])()
    return check_call(first.resume(first.execute_tools()).text())


def schema() -> str:
    return check_weather(build(QUESTION, format=Weather)().parse())


run("mirascope", chat=chat, stream=stream, tools=tools, schema=schema)
