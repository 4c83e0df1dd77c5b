"""Grammars of responses: GBNF, JSON schemas, regular expressions, Lark.

    sampler = Sampler(SamplingParams(json_schema={"type": "integer"}), n_vocab, tokenizer)

llguidance returns the allowed next tokens. `compiled` checks a text and converts it to llguidance's
form (`trial` does so in a separate process if it may take long). This package parses GBNF (`gbnf`,
`check`), splits it into lexemes without changing it (`lexemes`, `shape`, `automata`), and writes
it as Lark (`lark`). `vocabulary` is the model's tokens in llguidance's form, created once per
model. `unique` refuses tokens that would repeat a key of a JSON object.
"""

from llama_py.grammar.compiled import Grammar, compiled

__all__ = ["Grammar", "compiled"]
