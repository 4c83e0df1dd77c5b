"""agent-framework-openai: OpenAIChatCompletionClient and OpenAIEmbeddingClient."""

from __future__ import annotations

import asyncio
from typing import Any

from agent_framework import Agent
from agent_framework.openai import OpenAIChatCompletionClient, OpenAIEmbeddingClient
from feature import (
    ASK,
    KEY,
    MODEL,
    OPENAI,
    QUESTION,
    TEXTS,
    check_call,
    check_parts,
    check_text,
    check_vectors,
    check_weather,
    run,
    weather,
)
from schemas import Weather


def ask(text: str = ASK, tools: Any = None, **options: Any) -> Any:
    async def read() -> Any:
        client: Any = OpenAIChatCompletionClient(MODEL, api_key=KEY, base_url=OPENAI)
        return await Agent(client, tools=tools).run(text, options=options or None)

    return asyncio.run(read())


def chat() -> str:
    return check_text(ask().text)


def stream() -> str:
    async def read() -> list[str]:
        client: Any = OpenAIChatCompletionClient(MODEL, api_key=KEY, base_url=OPENAI)
        return [part.text async for part in Agent(client).run(ASK, stream=True)]

    return check_parts(asyncio.run(read()))


def tools() -> str:
    return check_call(ask(QUESTION, [weather]).text)


def schema() -> str:
    return check_weather(ask(QUESTION, response_format=Weather).text)


def embeddings() -> str:
    async def read() -> Any:
        client: Any = OpenAIEmbeddingClient(model=MODEL, api_key=KEY, base_url=OPENAI)
        return await client.get_embeddings(TEXTS)

    return check_vectors([one.vector for one in asyncio.run(read())])


run(
    "agent-framework-openai", chat=chat, stream=stream, tools=tools, schema=schema,
    embeddings=embeddings,
)  # fmt: skip
