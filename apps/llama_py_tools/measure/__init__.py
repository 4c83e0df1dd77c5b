"""Commands that measure a model: perplexity, embeddings, importance, node values."""
