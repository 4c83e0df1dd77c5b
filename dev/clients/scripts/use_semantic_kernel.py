"""semantic-kernel: OpenAIChatCompletion and OpenAITextEmbedding."""

import asyncio
from enum import Enum
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
from openai import AsyncOpenAI
from schemas import Weather
from semantic_kernel import Kernel
from semantic_kernel.connectors.ai import FunctionChoiceBehavior
from semantic_kernel.connectors.ai.open_ai import (
    OpenAIChatCompletion,
    OpenAIChatPromptExecutionSettings,
    OpenAITextEmbedding,
)
from semantic_kernel.contents import ChatHistory
from semantic_kernel.functions import kernel_function


class Place(str, Enum):
    here = "here"
    there = "there"


def report(place: Place) -> str:
    return weather(Place(place).value)  # type: ignore[arg-type]


kernel = Kernel()
kernel.add_function("tools", kernel_function(report, "weather", "Weather of a place."))
Settings: Any = OpenAIChatPromptExecutionSettings


def build(kind: Any = OpenAIChatCompletion) -> Any:
    return kind(ai_model_id=MODEL, async_client=AsyncOpenAI(base_url=OPENAI, api_key=KEY))


def ask(text: str = ASK, **how: Any) -> Any:
    history = ChatHistory()
    history.add_user_message(text)
    answer = build().get_chat_message_content(history, Settings(**how), kernel=kernel)
    return asyncio.run(answer)


def chat() -> str:
    return check_text(str(ask()))


def stream() -> str:
    async def read() -> list[str]:
        history = ChatHistory()
        history.add_user_message(ASK)
        parts = build().get_streaming_chat_message_content(history, Settings())
        return [str(part) async for part in parts]

    return check_parts(asyncio.run(read()))


def tools() -> str:
    return check_call(str(ask(QUESTION, function_choice_behavior=FunctionChoiceBehavior.Auto())))


def schema() -> str:
    return check_weather(str(ask(QUESTION, response_format=Weather)))


def embeddings() -> str:
    return check_vectors(asyncio.run(build(OpenAITextEmbedding).generate_embeddings(TEXTS)))


def logprobs() -> str:
    found = ask(extra_body={"logprobs": True}).metadata["logprobs"].content
    return check_logprobs(one.logprob for one in found)


run(
    "semantic-kernel", chat=chat, stream=stream, tools=tools, schema=schema,
    embeddings=embeddings, logprobs=logprobs,
)  # fmt: skip
