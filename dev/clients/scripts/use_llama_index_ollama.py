"""llama-index-llms-ollama, with llama-index-embeddings-ollama. It has no log probabilities."""

from __future__ import annotations

import asyncio
from typing import Any

from feature import (
    ASK,
    MODEL,
    QUESTION,
    TEXTS,
    URL,
    check_call,
    check_parts,
    check_text,
    check_vectors,
    check_weather,
    run,
    weather,
)
from llama_index.core.agent.workflow import FunctionAgent
from llama_index.core.llms import ChatMessage
from llama_index.embeddings.ollama import OllamaEmbedding
from llama_index.llms.ollama import Ollama
from schemas import Weather

model: Any = Ollama(MODEL, URL, request_timeout=120.0)


def chat() -> str:
    return check_text(model.chat([ChatMessage(ASK)]).message.content)


def stream() -> str:
    return check_parts(part.delta for part in model.stream_chat([ChatMessage(ASK)]))


def tools() -> str:
    async def ask() -> Any:
        agent = FunctionAgent(tools=[weather], llm=model, allow_parallel_tool_calls=False)
        return await agent.run(QUESTION)

    return check_call(str(asyncio.run(ask())))


def schema() -> str:
    return check_weather(model.as_structured_llm(Weather).complete(QUESTION).raw)


def embeddings() -> str:
    return check_vectors(OllamaEmbedding(MODEL, URL).get_text_embedding_batch(TEXTS))


run(
    "llama-index-llms-ollama", chat=chat, stream=stream, tools=tools, schema=schema,
    embeddings=embeddings,
)  # fmt: skip
