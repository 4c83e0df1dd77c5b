"""Grammars of responses with llama-cpp-python's names."""

from __future__ import annotations

import json
from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import Any

from ggml_py.errors import GrammarError
from llama_py.grammar import compile_grammar

__all__ = ["LLAMA_GRAMMAR_DEFAULT_ROOT", "LlamaGrammar"]

LLAMA_GRAMMAR_DEFAULT_ROOT = "root"


class LlamaGrammar:
    """Grammar of a response: GBNF, or a JSON schema.

    kind   field of `llama_py.SamplingParams`: grammar or json_schema
    value  text of the grammar, or the schema as JSON
    """

    def __init__(self, kind: str, value: str) -> None:
        """Check a grammar; GrammarError, a ValueError, if it is invalid."""
        compile_grammar(kind, value)
        self.kind, self.value = kind, value

    @classmethod
    def from_string(cls, grammar: str, verbose: bool = True) -> LlamaGrammar:
        """Return a grammar in GBNF; `verbose` has no effect."""
        return cls("grammar", grammar)

    @classmethod
    def from_file(cls, file: str | PathLike[str], verbose: bool = True) -> LlamaGrammar:
        """Return the grammar of a GBNF file. GrammarError if it is empty or invalid."""
        text = Path(file).read_text("utf-8")
        if not text:
            raise GrammarError(f"{file}: the grammar file is empty; write a root rule")
        return cls.from_string(text)

    @classmethod
    def from_json_schema(
        cls, json_schema: str | Mapping[str, Any], verbose: bool = True
    ) -> LlamaGrammar:
        """Return a grammar of a JSON schema, given as JSON or a dictionary."""
        text = json_schema if isinstance(json_schema, str) else json.dumps(json_schema)
        return cls("json_schema", text)

    @property
    def options(self) -> dict[str, str]:
        """The field of `SamplingParams` that applies this grammar."""
        return {self.kind: self.value}
