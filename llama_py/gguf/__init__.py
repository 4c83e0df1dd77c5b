"""GGUF files: metadata, tensors, parts, writing, and the names of quantizations."""
