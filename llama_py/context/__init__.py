"""Context of a model: memory and graphs, run by `Context.decode`."""

from llama_py.context.context import Context

__all__ = ["Context"]
