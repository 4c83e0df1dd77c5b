"""pydantic-ai: OpenAIChatModel and OpenAIEmbeddingModel."""

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
from pydantic_ai import Agent, Embedder, NativeOutput
from pydantic_ai.embeddings.openai import OpenAIEmbeddingModel
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.profiles.openai import OpenAIModelProfile
from pydantic_ai.providers.openai import OpenAIProvider
from schemas import Weather

provider = OpenAIProvider(base_url=OPENAI, api_key=KEY)
profile = OpenAIModelProfile(supports_json_schema_output=True)
model = OpenAIChatModel(MODEL, provider=provider, profile=profile)


def chat() -> str:
    return check_text(Agent(model).run_sync(ASK).output)


def stream() -> str:
    async def read() -> list[str]:
        async with Agent(model).run_stream(ASK) as found:
            return [part async for part in found.stream_text(delta=True, debounce_by=None)]

    return check_parts(asyncio.run(read()))


def tools() -> str:
    return check_call(Agent(model, tools=[weather]).run_sync(QUESTION).output)


def schema() -> str:
    """The schema as a tool, the default, and as the format of the response."""
    for kind in (Weather, NativeOutput(Weather)):
        found: Any = Agent(model, output_type=kind).run_sync(QUESTION).output
        said = check_weather(found)
    return said


def embeddings() -> str:
    made = Embedder(OpenAIEmbeddingModel(MODEL, provider=provider))
    return check_vectors(made.embed_documents_sync(TEXTS).embeddings)


def logprobs() -> str:
    how: Any = {"openai_logprobs": True, "openai_top_logprobs": 2}
    found: Any = Agent(model).run_sync(ASK, model_settings=how).all_messages()[-1]
    return check_logprobs(one["logprob"] for one in found.provider_details["logprobs"])


run(
    "pydantic-ai-slim", chat=chat, stream=stream, tools=tools, schema=schema,
    embeddings=embeddings, logprobs=logprobs,
)  # fmt: skip
