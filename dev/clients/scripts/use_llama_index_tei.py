"""llama-index-embeddings-text-embeddings-inference: a client of TEI, for embeddings only."""

from __future__ import annotations

from feature import MODEL, TEXTS, URL, check_vectors, run
from llama_index.embeddings.text_embeddings_inference import TextEmbeddingsInference


def embeddings() -> str:
    made = TextEmbeddingsInference(model_name=MODEL, base_url=URL)
    return check_vectors(made.get_text_embedding_batch(TEXTS))


run("llama-index-embeddings-text-embeddings-inference", embeddings=embeddings)
