"""autogen-ext: OpenAIChatCompletionClient, and AssistantAgent for tools. It has no embeddings."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from autogen_agentchat.agents import AssistantAgent
from autogen_core.models import UserMessage
from autogen_ext.models.openai import OpenAIChatCompletionClient
from feature import (
    ASK,
    KEY,
    MODEL,
    OPENAI,
    QUESTION,
    check_call,
    check_logprobs,
    check_parts,
    check_text,
    check_weather,
    run,
    weather,
)
from schemas import Weather

INFO: Any = {
    "vision": False, "function_calling": True, "json_output": True, "family": "unknown",
    "structured_output": True,
}  # fmt: skip


def wait(ask: Callable[[Any], Awaitable[Any]], **how: Any) -> Any:
    async def read() -> Any:
        return await ask(
            OpenAIChatCompletionClient(
                model=MODEL, base_url=OPENAI, api_key=KEY, model_info=INFO, **how
            )
        )

    return asyncio.run(read())


def create(text: str = ASK, **how: Any) -> Any:
    return wait(lambda client: client.create([UserMessage(content=text, source="user")], **how))


def chat() -> str:
    return check_text(create().content)


def stream() -> str:
    async def ask(client: Any) -> list[str]:
        parts = client.create_stream([UserMessage(content=ASK, source="user")])
        return [part async for part in parts if isinstance(part, str)]

    return check_parts(wait(ask))


def tools() -> str:
    async def ask(client: Any) -> Any:
        agent = AssistantAgent("JULIET", client, tools=[weather], reflect_on_tool_use=True)
        return await agent.run(task=QUESTION)

    return check_call(wait(ask).messages[-1].to_text())


def schema() -> str:
    return check_weather(create(QUESTION, json_output=Weather).content)


def logprobs() -> str:
    found = create(extra_create_args={"logprobs": True}).logprobs
    return check_logprobs(one.logprob for one in found)


run("autogen-ext", chat=chat, stream=stream, tools=tools, schema=schema, logprobs=logprobs)
