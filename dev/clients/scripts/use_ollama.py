"""ollama (Python)."""

from __future__ import annotations

from typing import Any

from feature import (
    MESSAGES,
    MODEL,
    QUESTIONS,
    TEXTS,
    TOOL,
    URL,
    check_call,
    check_logprobs,
    check_parts,
    check_text,
    check_vectors,
    check_weather,
    run,
    weather,
)
from ollama import Client
from schemas import Weather

client = Client(URL)


def ask(messages: Any = MESSAGES, **how: Any) -> Any:
    return client.chat(MODEL, messages, **how)


def chat() -> str:
    return check_text(ask().message.content)


def stream() -> str:
    return check_parts(part.message.content for part in ask(stream=True))


def tools() -> str:
    first = ask(QUESTIONS, tools=[TOOL]).message
    call = first.tool_calls[0].function
    result = {"role": "tool", "tool_name": call.name, "content": weather(**call.arguments)}
    return check_call(ask([*QUESTIONS, first, result], tools=[TOOL]).message.content)


def schema() -> str:
    return check_weather(ask(QUESTIONS, format=Weather.model_json_schema()).message.content)


def embeddings() -> str:
    return check_vectors(client.embed(MODEL, TEXTS).embeddings)


def logprobs() -> str:
    return check_logprobs(one.logprob for one in ask(logprobs=True, top_logprobs=2).logprobs)


run(
    "ollama", chat=chat, stream=stream, tools=tools, schema=schema, embeddings=embeddings,
    logprobs=logprobs,
)  # fmt: skip
