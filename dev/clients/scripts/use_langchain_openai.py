"""langchain-openai: ChatOpenAI and OpenAIEmbeddings."""

from __future__ import annotations

from typing import Any

from feature import ASK, KEY, MODEL, OPENAI, TEXTS, check_logprobs, check_vectors, run
from langchain_chat import ChatFeatures
from langchain_openai import ChatOpenAI, OpenAIEmbeddings

HOW: Any = {"model": MODEL, "base_url": OPENAI, "api_key": KEY}
features = ChatFeatures(ChatOpenAI(**HOW))


def embeddings() -> str:
    made = OpenAIEmbeddings(**HOW, check_embedding_ctx_length=False)
    return check_vectors(made.embed_documents(TEXTS))


def logprobs() -> str:
    bound = features.model.bind(logprobs=True)
    found = bound.invoke(ASK).response_metadata["logprobs"]["content"]
    return check_logprobs(one["logprob"] for one in found)


run(
    "langchain-openai", chat=features.chat, stream=features.stream, tools=features.tools,
    schema=features.schema, embeddings=embeddings, logprobs=logprobs,
)  # fmt: skip
