"""chromadb: embedding functions of OpenAI's API, Ollama's and TEI's."""

from __future__ import annotations

import os
from typing import Any

from chromadb.utils import embedding_functions as functions
from feature import KEY, MODEL, OPENAI, TEXTS, URL, check_vectors, run


def embeddings() -> str:
    os.environ["CHROMA_OPENAI_API_KEY"] = KEY
    each: list[Any] = [
        functions.OpenAIEmbeddingFunction(model_name=MODEL, api_base=OPENAI),
        functions.OllamaEmbeddingFunction(url=URL, model_name=MODEL),
        functions.HuggingFaceEmbeddingServer(url=f"{URL}/embed"),
    ]
    return ", ".join(check_vectors(embed(TEXTS)) for embed in each)


run("chromadb", embeddings=embeddings)
