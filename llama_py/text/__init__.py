"""Text generation: streams, conversations, tool calls, infill, embeddings, scores of texts."""
