"""From prompts to answers: streams, conversations, tool calls, infill, embeddings, reranking."""
