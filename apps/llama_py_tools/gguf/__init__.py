"""Commands of llama-py-gguf: show, edit, split, merge, compare and quantize GGUF files."""

from llama_py_tools.gguf.main import main, parser

__all__ = ["main", "parser"]
