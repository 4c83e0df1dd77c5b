"""haystack-ai: OpenAIChatGenerator and OpenAITextEmbedder."""

from __future__ import annotations

from typing import Any

from feature import (
    ASK,
    FORMAT,
    KEY,
    MODEL,
    OPENAI,
    QUESTION,
    TEXTS,
    check_call,
    check_logprobs,
    check_parts,
    check_text,
    check_vectors,
    check_weather,
    run,
    weather,
)
from haystack.components.embedders import OpenAITextEmbedder
from haystack.components.generators.chat import OpenAIChatGenerator
from haystack.dataclasses import ChatMessage
from haystack.tools import create_tool_from_function
from haystack.utils import Secret

HOW: Any = {"api_key": Secret.from_token(KEY), "model": MODEL, "api_base_url": OPENAI}
model: Any = OpenAIChatGenerator(**HOW)


def ask(messages: Any, **how: Any) -> Any:
    if isinstance(messages, str):
        messages = [ChatMessage.from_user(messages)]
    return model.run(messages, **how)["replies"][0]


def chat() -> str:
    return check_text(ask(ASK).text)


def stream() -> str:
    parts: list[str] = []
    ask(ASK, streaming_callback=lambda part: parts.append(part.content))
    return check_parts(parts)


def tools() -> str:
    offered = [create_tool_from_function(weather)]
    asked = ChatMessage.from_user(QUESTION)
    first = ask([asked], tools=offered)
    call = first.tool_calls[0]
    result = ChatMessage.from_tool(weather(**call.arguments), origin=call)
    return check_call(ask([asked, first, result], tools=offered).text)


def schema() -> str:
    return check_weather(ask(QUESTION, generation_kwargs={"response_format": FORMAT}).text)


def embeddings() -> str:
    embedder: Any = OpenAITextEmbedder(**HOW)
    return check_vectors([embedder.run(text)["embedding"] for text in TEXTS])


def logprobs() -> str:
    found = ask(ASK, generation_kwargs={"logprobs": True}).meta["logprobs"]["content"]
    return check_logprobs(one["logprob"] for one in found)


run(
    "haystack-ai", chat=chat, stream=stream, tools=tools, schema=schema,
    embeddings=embeddings, logprobs=logprobs,
)  # fmt: skip
