"""llama-index-llms-openai-like, with llama-index-embeddings-openai-like."""

from __future__ import annotations

import asyncio
from typing import Any

from feature import (
    ASK,
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
from llama_index.core.agent.workflow import FunctionAgent
from llama_index.core.llms import ChatMessage
from llama_index.embeddings.openai_like import OpenAILikeEmbedding
from llama_index.llms.openai_like import OpenAILike
from schemas import Weather

HOW: Any = {
    "model": MODEL, "api_base": OPENAI, "api_key": KEY, "is_chat_model": True,
    "is_function_calling_model": True, "should_use_structured_outputs": True,
    "context_window": 8192,
}  # fmt: skip
model: Any = OpenAILike(**HOW)


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
    made = OpenAILikeEmbedding(model_name=MODEL, api_base=OPENAI, api_key=KEY)
    return check_vectors(made.get_text_embedding_batch(TEXTS))


def logprobs() -> str:
    found: Any = OpenAILike(**HOW, logprobs=True, top_logprobs=2).chat([ChatMessage(ASK)]).logprobs
    return check_logprobs(max(one.logprob for one in token) for token in found)


run(
    "llama-index-llms-openai-like", chat=chat, stream=stream, tools=tools, schema=schema,
    embeddings=embeddings, logprobs=logprobs,
)  # fmt: skip
