"""aisuite: the provider `openai`. It has no embeddings."""

from __future__ import annotations

from typing import Any

from aisuite import Client
from feature import (
    FORMAT,
    KEY,
    MESSAGES,
    OPENAI,
    QUESTIONS,
    check_call,
    check_logprobs,
    check_parts,
    check_text,
    check_weather,
    run,
    weather,
)

client = Client({"openai": {"base_url": OPENAI, "api_key": KEY}})


def ask(messages: Any = MESSAGES, **how: Any) -> Any:
    return client.chat.completions.create("openai:demo", [*messages], **how)


def chat() -> str:
    return check_text(ask().choices[0].message.content)


def stream() -> str:
    return check_parts(part.choices[0].delta.content for part in ask(stream=True))


def tools() -> str:
    return check_call(ask(QUESTIONS, tools=[weather], max_turns=2).choices[0].message.content)


def schema() -> str:
    return check_weather(ask(QUESTIONS, response_format=FORMAT).choices[0].message.content)


def logprobs() -> str:
    found = ask(logprobs=True).choices[0].logprobs.content
    return check_logprobs(one.logprob for one in found)


run("aisuite", chat=chat, stream=stream, tools=tools, schema=schema, logprobs=logprobs)
