"""llama-py-gguf: look at GGUF files, change their metadata, split, merge, compare and
quantize them."""

from llama_py_tools.gguf.main import main, parser

__all__ = ["main", "parser"]
