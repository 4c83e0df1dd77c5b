"""inspect-ai: the provider `openai-api`. It has no embeddings."""

import asyncio
from collections.abc import Awaitable
from typing import Any, Literal

from feature import (
    ASK,
    KEY,
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
from inspect_ai.model import (
    ChatMessageUser,
    GenerateConfig,
    ResponseSchema,
    execute_tools,
    get_model,
)
from inspect_ai.tool import Tool, tool
from inspect_ai.util import json_schema
from schemas import Weather


@tool(name="weather")
def weather_tool() -> Tool:
    async def execute(place: Literal["here", "there"]) -> str:
        """Weather of a place.

        Args:
            place: here or there
        """
        return weather(place)

    return execute


def build() -> Any:
    return get_model("openai-api/local/demo", base_url=OPENAI, api_key=KEY, memoize=False)


async def generate(text: str = ASK, **config: Any) -> Any:
    return await build().generate(text, config=GenerateConfig(**config))


def wait(answer: Awaitable[Any]) -> Any:
    async def read() -> Any:
        return await answer

    return asyncio.run(read())


def chat() -> str:
    return check_text(wait(generate()).completion)


def stream() -> str:
    parts: list[str] = []

    async def add(event: Any) -> None:
        parts.append(getattr(event, "text", ""))

    wait(build().generate(ASK, on_stream=add))
    return check_parts(parts)


def tools() -> str:
    async def ask() -> Any:
        model, messages = build(), [ChatMessageUser(content=QUESTION)]
        first = await model.generate(messages, tools=[weather_tool()])
        messages.append(first.message)
        messages += (await execute_tools(messages, [weather_tool()])).messages
        return await model.generate(messages, tools=[weather_tool()])

    return check_call(wait(ask()).completion)


def schema() -> str:
    schema = ResponseSchema(name="weather", json_schema=json_schema(Weather))
    return check_weather(wait(generate(QUESTION, response_schema=schema)).completion)


def logprobs() -> str:
    found = wait(generate(logprobs=True, top_logprobs=2)).choices[0].logprobs.content
    return check_logprobs(one.logprob for one in found)


run("inspect-ai", chat=chat, stream=stream, tools=tools, schema=schema, logprobs=logprobs)
