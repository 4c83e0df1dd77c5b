"""langchain-openai: ChatOpenAI and OpenAIEmbeddings."""

from __future__ import annotations

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
from langchain_core.messages import HumanMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI, OpenAIEmbeddings
from schemas import Weather

HOW: Any = {"model": MODEL, "base_url": OPENAI, "api_key": KEY}
model: Any = ChatOpenAI(**HOW)


def chat() -> str:
    return check_text(model.invoke(ASK).content)


def stream() -> str:
    return check_parts(chunk.content for chunk in model.stream(ASK))


def tools() -> str:
    called = tool(weather)
    bound = model.bind_tools([called])
    asked = HumanMessage(QUESTION)
    first = bound.invoke([asked])
    result = called.invoke(first.tool_calls[0])
    return check_call(bound.invoke([asked, first, result]).content)


def schema() -> str:
    return check_weather(model.with_structured_output(Weather).invoke(QUESTION))


def embeddings() -> str:
    made = OpenAIEmbeddings(**HOW, check_embedding_ctx_length=False)
    return check_vectors(made.embed_documents(TEXTS))


def logprobs() -> str:
    found = model.bind(logprobs=True).invoke(ASK).response_metadata["logprobs"]["content"]
    return check_logprobs(one["logprob"] for one in found)


run(
    "langchain-openai", chat=chat, stream=stream, tools=tools, schema=schema,
    embeddings=embeddings, logprobs=logprobs,
)  # fmt: skip
