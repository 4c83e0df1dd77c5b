"""crewai: LLM and Agent, and its embedders. It returns no log probabilities."""

from __future__ import annotations

from typing import Any

from crewai import LLM, Agent
from crewai.events import LLMStreamChunkEvent, crewai_event_bus
from crewai.rag.embeddings.factory import build_embedder
from crewai.tools import tool
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


def build(**how: Any) -> Any:
    return LLM(model="openai/demo", base_url=OPENAI, api_key=KEY, **how)


def chat() -> str:
    return check_text(build().call(ASK))


def stream() -> str:
    parts: list[str] = []
    with crewai_event_bus.scoped_handlers():
        crewai_event_bus.on(LLMStreamChunkEvent)(lambda _, event: parts.append(event.chunk))
        whole = build(stream=True).call(ASK)
        crewai_event_bus.flush()
    assert "".join(parts) == whole
    return check_parts(parts)


def tools() -> str:
    agent = Agent(
        role="JULIET", goal="Answer", backstory="Of Verona", llm=build(),
        tools=[tool("weather")(weather)],
    )  # fmt: skip
    return check_call(agent.kickoff(QUESTION).raw)


def schema() -> str:
    return check_weather(build().call(QUESTION, response_model=Weather))


def embeddings() -> str:
    config = {"api_key": KEY, "model_name": MODEL, "api_base": OPENAI}
    return check_vectors(build_embedder({"provider": "openai", "config": config})(TEXTS))


run("crewai", chat=chat, stream=stream, tools=tools, schema=schema, embeddings=embeddings)
