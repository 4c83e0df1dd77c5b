"""langchain-ollama: ChatOllama and OllamaEmbeddings."""

from __future__ import annotations

from typing import Any

from feature import ASK, MODEL, TEXTS, URL, check_logprobs, check_vectors, run
from langchain_chat import ChatFeatures
from langchain_ollama import ChatOllama, OllamaEmbeddings

HOW: Any = {"model": MODEL, "base_url": URL}
features = ChatFeatures(ChatOllama(**HOW))


def embeddings() -> str:
    return check_vectors(OllamaEmbeddings(**HOW).embed_documents(TEXTS))


def logprobs() -> str:
    found = ChatOllama(**HOW, logprobs=True).invoke(ASK).response_metadata["logprobs"]
    return check_logprobs(one["logprob"] for one in found)


run(
    "langchain-ollama", chat=features.chat, stream=features.stream, tools=features.tools,
    schema=features.schema, embeddings=embeddings, logprobs=logprobs,
)  # fmt: skip
