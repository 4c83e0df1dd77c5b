"""Conversion of GBNF to Lark, llguidance's grammar format."""

from __future__ import annotations

from dataclasses import dataclass

from llama_py.grammar.check import check
from llama_py.grammar.gbnf import parse
from llama_py.grammar.lexemes import cut
from llama_py.grammar.nodes import Ref, TokenChoice
from llama_py.grammar.regex import times
from llama_py.grammar.shape import AlternativePart, Leaf, Part, RepeatCount, RuleSizes, SequencePart


@dataclass(frozen=True)
class Lark:
    """A grammar with the placeholders `<[@0]>`, `<[@1]>`, ... for tokens."""

    text: str
    tokens: tuple[TokenChoice, ...]


def convert_gbnf(gbnf: str) -> Lark:
    """Convert a GBNF grammar; GrammarError if it is invalid."""
    rules = parse(gbnf)
    check(rules, gbnf)
    shape = cut(rules)
    tokens = [leaf for leaf in shape.leaves if isinstance(leaf, TokenChoice)]
    names = {name: "start" if name == "root" else f"r{i}" for i, name in enumerate(shape.rules)}
    lines = [f"{names[name]}: {_text(part, shape, names)}" for name, part in shape.rules.items()]
    for i, leaf in enumerate(shape.leaves):
        if not isinstance(leaf, TokenChoice):
            lines.append(f"T{i}: /{shape.texts[i]}/")
    text = "\n".join(lines) + "\n"
    for i, token in enumerate(tokens):
        name = f"<[{'^' if token.but else ''}@{i}]>"
        text = text.replace(f"<{shape.leaves.index(token)}>", name)
    return Lark(text, tuple(tokens))


def _text(part: Part, shape: RuleSizes, names: dict[str, str]) -> str:
    if isinstance(part, Leaf):
        is_token = isinstance(shape.leaves[part.number], TokenChoice)
        return f"<{part.number}>" if is_token else f"T{part.number}"
    if isinstance(part, Ref):
        return names[part.name]
    if isinstance(part, RepeatCount):
        return f"({_text(part.item, shape, names)}){times(part.low, part.high)}"
    inner = [_text(one, shape, names) for one in part.items]
    if isinstance(part, SequencePart):
        return " ".join(inner) or '""'
    assert isinstance(part, AlternativePart)
    return f"({' | '.join(inner)})"
