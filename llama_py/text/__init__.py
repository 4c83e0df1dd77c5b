"""Text generation: streams, conversations, tool calls, infill, embeddings, reranking."""
