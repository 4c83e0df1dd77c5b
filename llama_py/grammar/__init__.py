"""Grammars of responses: GBNF, JSON schemas, regular expressions, Lark.

    sampler = Sampler(SamplingParams(json_schema={"type": "integer"}), n_vocab, tokenizer)

llguidance returns the allowed next tokens. `compile_grammar` checks a text and converts it to
llguidance's form (`trial` does so in a separate process if it may take long). This package parses
GBNF (`gbnf`, `check`), splits it into lexemes without changing it (`lexemes`, `shape`,
`automata`), and writes it as Lark (`lark`). `vocabulary` is the model's tokens in llguidance's
form, created once per model. `unique` refuses tokens that would repeat a key of a JSON object.
"""

from typing import TYPE_CHECKING

from ggml_py._moved import former_names
from llama_py.grammar.compiled import Grammar, compile_grammar

__all__ = ["Grammar", "compile_grammar"]


if not TYPE_CHECKING:
    __getattr__ = former_names(__name__, compiled="compile_grammar")
