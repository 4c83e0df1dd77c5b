"""Demo model with llama-cpp-python's interface, and parts of its responses."""

from __future__ import annotations

from typing import Any

from llama_py.compat.llama_cpp import Llama
from llama_py.loading.model import DEMO

PROMPT = "ROMEO:"
ASK = [{"role": "user", "content": "Who are you?"}]
YES = 'root ::= " yes" | " no"'


def make(**options: Any) -> Llama:
    """Load the demo model."""
    return Llama(str(DEMO), **{"n_ctx": 256, "verbose": False, **options})


def get_text(found: Any) -> str:
    """Return the text of a completion or chunk."""
    return str(found["choices"][0]["text"])


def content(found: Any) -> Any:
    """Return the content of a chat completion."""
    return found["choices"][0]["message"]["content"]
