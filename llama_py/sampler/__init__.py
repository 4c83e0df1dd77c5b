"""From logits to the next token.

    sampler = Sampler(SamplingParams(temp=0.7, seed=1), n_vocab)
    id = sampler.sample(logits)
    sampler.accept(id)

The names are imported when they are first used: a command's --help needs only the parameters.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from llama_py.sampler.chain import Sampler
    from llama_py.sampler.filters import Candidates
    from llama_py.sampler.params import SamplingParams

__all__ = ["Candidates", "Sampler", "SamplingParams"]

_HOME = {"Candidates": "filters", "Sampler": "chain", "SamplingParams": "params"}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'llama_py.sampler' has no attribute {name!r}")
    return getattr(import_module(f"llama_py.sampler.{_HOME[name]}"), name)
