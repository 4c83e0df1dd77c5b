"""magentic: OpenaiChatModel. It has no embeddings and no log probabilities."""

from typing import Any

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
from magentic import OpenaiChatModel, StreamedStr, prompt, prompt_chain
from schemas import Weather

HOW: Any = {"model": OpenaiChatModel(MODEL, api_key=KEY, base_url=OPENAI)}


@prompt(ASK, **HOW)
def say() -> str: ...  # type: ignore[empty-body]


@prompt(ASK, **HOW)
def say_parts() -> StreamedStr: ...  # type: ignore[empty-body]


@prompt_chain(QUESTION, functions=[weather], **HOW)
def say_weather() -> str: ...  # type: ignore[empty-body]


@prompt(QUESTION, **HOW)
def report() -> Weather: ...  # type: ignore[empty-body]


def chat() -> str:
    return check_text(say())


def stream() -> str:
    return check_parts(say_parts())


def tools() -> str:
    return check_call(say_weather())


def schema() -> str:
    return check_weather(report())


run("magentic", chat=chat, stream=stream, tools=tools, schema=schema)
