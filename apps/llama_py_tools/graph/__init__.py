"""Commands of llama-py-graph: a model's graphs as text, JSON, DOT or HTML, and their comparison."""

from llama_py_tools.graph.main import main, parser

__all__ = ["main", "parser"]
