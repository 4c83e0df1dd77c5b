"""huggingface_hub: InferenceClient."""

from __future__ import annotations

import json
from typing import Any

from feature import (
    FORMAT,
    MESSAGES,
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
from huggingface_hub import InferenceClient

client = InferenceClient(URL)


def ask(messages: Any = MESSAGES, **how: Any) -> Any:
    return client.chat_completion(messages, **how)


def chat() -> str:
    return check_text(ask().choices[0].message.content)


def stream() -> str:
    return check_parts(part.choices[0].delta.content for part in ask(stream=True))


def tools() -> str:
    first = ask(QUESTIONS, tools=[TOOL]).choices[0].message
    call = first.tool_calls[0]
    arguments = call.function.arguments
    said = weather(**(json.loads(arguments) if isinstance(arguments, str) else arguments))
    result = {"role": "tool", "tool_call_id": call.id, "content": said}
    return check_call(ask([*QUESTIONS, first, result], tools=[TOOL]).choices[0].message.content)


def schema() -> str:
    return check_weather(ask(QUESTIONS, response_format=FORMAT).choices[0].message.content)


def embeddings() -> str:
    return check_vectors([client.feature_extraction(text).reshape(-1) for text in TEXTS])


def logprobs() -> str:
    found = ask(logprobs=True, top_logprobs=2).choices[0].logprobs.content
    return check_logprobs(one.logprob for one in found)


run(
    "huggingface_hub", chat=chat, stream=stream, tools=tools, schema=schema,
    embeddings=embeddings, logprobs=logprobs,
)  # fmt: skip
