"""smolagents: OpenAIModel. It has no embeddings and no log probabilities."""

from __future__ import annotations

import json
from typing import Any

from feature import (
    FORMAT,
    KEY,
    MESSAGES,
    MODEL,
    OPENAI,
    QUESTION,
    QUESTIONS,
    check_call,
    check_parts,
    check_text,
    check_weather,
    run,
    weather,
)
from smolagents import OpenAIModel, ToolCallingAgent, tool

model: Any = OpenAIModel(MODEL, OPENAI, KEY)


def chat() -> str:
    return check_text(model.generate(MESSAGES).content)


def stream() -> str:
    return check_parts(part.content for part in model.generate_stream(MESSAGES))


def tools() -> str:
    """One call, and a step of an agent, which must call a tool or end."""
    called = tool(weather)
    call = model.generate(QUESTIONS, tools_to_call_from=[called]).tool_calls[0].function
    arguments: Any = call.arguments
    weather(**(json.loads(arguments) if isinstance(arguments, str) else arguments))
    agent = ToolCallingAgent([called], model, max_steps=1, verbosity_level=0)
    return check_call(str(agent.run(QUESTION)))


def schema() -> str:
    return check_weather(model.generate(QUESTIONS, response_format=FORMAT).content)


run("smolagents", chat=chat, stream=stream, tools=tools, schema=schema)
