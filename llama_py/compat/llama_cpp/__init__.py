"""llama-cpp-python's interface: `Llama`, grammars, caches, types (its version 0.3.36).

    from llama_py.compat.llama_cpp import Llama

`llama_py.compat.install` makes this package importable as `llama_cpp`. The C functions of
llama.cpp are absent.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from llama_py.compat.llama_cpp import llama, llama_cpp, llama_types
from llama_py.compat.llama_cpp.llama import Llama as Llama
from llama_py.compat.llama_cpp.llama import LlamaState as LlamaState
from llama_py.compat.llama_cpp.llama import LogitsProcessorList as LogitsProcessorList
from llama_py.compat.llama_cpp.llama import MinTokensLogitsProcessor as MinTokensLogitsProcessor
from llama_py.compat.llama_cpp.llama import StoppingCriteriaList as StoppingCriteriaList
from llama_py.compat.llama_cpp.llama_cache import (
    BaseLlamaCache,
    LlamaCache,
    LlamaDiskCache,
    LlamaRAMCache,
)
from llama_py.compat.llama_cpp.llama_grammar import LlamaGrammar
from llama_py.compat.llama_cpp.llama_speculative import LlamaDraftModel, LlamaPromptLookupDecoding
from llama_py.compat.llama_cpp.llama_tokenizer import (
    BaseLlamaTokenizer,
    LlamaHFTokenizer,
    LlamaTokenizer,
)

__version__ = "0.3.36"  # version of llama-cpp-python with this interface
__all__ = [
    "BaseLlamaCache",
    "BaseLlamaTokenizer",
    "LlamaCache",
    "LlamaDiskCache",
    "LlamaDraftModel",
    "LlamaGrammar",
    "LlamaHFTokenizer",
    "LlamaPromptLookupDecoding",
    "LlamaRAMCache",
    "LlamaTokenizer",
]
__all__ += llama.__all__

if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        """Return a type of `llama_types`, or a constant of `llama_cpp`."""
        return getattr(llama_types if hasattr(llama_types, name) else llama_cpp, name)
