"""llama-index-llms-ollama, with llama-index-embeddings-ollama. It has no log probabilities."""

from __future__ import annotations

from feature import MODEL, TEXTS, URL, check_vectors, run
from llama_index.embeddings.ollama import OllamaEmbedding
from llama_index.llms.ollama import Ollama
from llama_index_chat import ChatFeatures

features = ChatFeatures(Ollama(MODEL, URL, request_timeout=120.0))


def embeddings() -> str:
    return check_vectors(OllamaEmbedding(MODEL, URL).get_text_embedding_batch(TEXTS))


run(
    "llama-index-llms-ollama", chat=features.chat, stream=features.stream, tools=features.tools,
    schema=features.schema, embeddings=embeddings,
)  # fmt: skip
