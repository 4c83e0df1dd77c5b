"""Grammars of responses: GBNF, JSON schemas, regular expressions, Lark.

    sampler = Sampler(SamplingParams(json_schema={"type": "integer"}), n_vocab, tokenizer)

llguidance says which tokens may come next. `compiled` checks a text and makes llguidance's form of
it (`trial` in a process of its own, if it may take long); GBNF is read here (`gbnf`, `check`), cut
into lexemes where that changes nothing (`lexemes`, `shape`, `automata`) and written as Lark
(`lark`). `vocabulary` is the model's tokens as llguidance wants them, made once a model. `unique`
refuses tokens that would repeat a key of a JSON object.
"""

from llama_py.grammar.compiled import Grammar, compiled

__all__ = ["Grammar", "compiled"]
