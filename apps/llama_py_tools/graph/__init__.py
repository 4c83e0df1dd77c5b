"""llama-py-graph: a model's graphs as text, JSON, DOT or HTML, and the difference of two."""

from llama_py_tools.graph.main import main, parser

__all__ = ["main", "parser"]
