"""openai-agents: OpenAIChatCompletionsModel. It has no embeddings, and hides log probabilities."""

from __future__ import annotations

import asyncio
from typing import Any

from agents import (
    Agent,
    AgentOutputSchema,
    OpenAIChatCompletionsModel,
    Runner,
    function_tool,
    set_tracing_disabled,
)
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
from openai import AsyncOpenAI
from schemas import Weather

set_tracing_disabled(True)


def build(**how: Any) -> Any:
    client = AsyncOpenAI(base_url=OPENAI, api_key=KEY)
    return Agent("JULIET", model=OpenAIChatCompletionsModel(MODEL, client), **how)


def chat() -> str:
    return check_text(Runner.run_sync(build(), ASK).final_output)


def stream() -> str:
    async def read() -> list[str]:
        events = Runner.run_streamed(build(), ASK).stream_events()
        raw = [event.data async for event in events if event.type == "raw_response_event"]
        return [event.delta for event in raw if event.type == "response.output_text.delta"]

    return check_parts(asyncio.run(read()))


def tools() -> str:
    agent = build(tools=[function_tool(weather)])
    return check_call(Runner.run_sync(agent, QUESTION).final_output)


def schema() -> str:
    agent = build(output_type=AgentOutputSchema(Weather))
    return check_weather(Runner.run_sync(agent, QUESTION).final_output)


run("openai-agents", chat=chat, stream=stream, tools=tools, schema=schema)
