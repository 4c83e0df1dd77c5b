"""Checkpoints of Hugging Face: folders of config.json, tokenizer and safetensors, as GGUF."""
