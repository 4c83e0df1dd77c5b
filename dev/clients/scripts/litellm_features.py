"""Features of litellm, the same for each of its providers."""

from __future__ import annotations

import json
from typing import Any

import litellm
from feature import (
    MESSAGES,
    QUESTIONS,
    TEXTS,
    TOOL,
    check_call,
    check_logprobs,
    check_parts,
    check_text,
    check_vectors,
    check_weather,
    run,
    weather,
)
from schemas import Weather


def check_provider(logprobs: bool, embedding: str = "", **how: Any) -> None:
    """Run the features of a provider.

    Args:
        logprobs: Whether the provider has log probabilities.
        embedding: Its model for embeddings; "": the same as for chat.
        how: Options of each request.
    """

    def ask(messages: Any = MESSAGES, **more: Any) -> Any:
        return litellm.completion(messages=messages, **how, **more)

    def chat() -> str:
        return check_text(ask().choices[0].message.content)

    def stream() -> str:
        return check_parts(chunk.choices[0].delta.content for chunk in ask(stream=True))

    def tools() -> str:
        first = ask(QUESTIONS, tools=[TOOL]).choices[0].message
        call = first.tool_calls[0]
        said = weather(**json.loads(call.function.arguments))
        result = {"role": "tool", "tool_call_id": call.id, "content": said}
        last = ask([*QUESTIONS, first, result], tools=[TOOL])
        return check_call(last.choices[0].message.content)

    def schema() -> str:
        return check_weather(ask(QUESTIONS, response_format=Weather).choices[0].message.content)

    def embeddings() -> str:
        options = {**how, "model": embedding or how["model"]}
        rows = litellm.embedding(input=TEXTS, **options).data
        return check_vectors([row["embedding"] for row in rows])

    def find_logprobs() -> str:
        found = ask(logprobs=True, top_logprobs=2).choices[0].logprobs.content
        return check_logprobs(one.logprob for one in found)

    more = {"logprobs": find_logprobs} if logprobs else {}
    run(
        "litellm", chat=chat, stream=stream, tools=tools, schema=schema, embeddings=embeddings,
        **more,
    )  # fmt: skip
