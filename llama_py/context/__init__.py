"""Memory and graphs at work: `Context.decode`."""

from llama_py.context.context import Context

__all__ = ["Context"]
