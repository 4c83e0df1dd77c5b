"""GGUF files: metadata, tensors, shards, writing, and quantization names."""
