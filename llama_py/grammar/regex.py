"""Conversion of a grammar's regular parts to Rust's regular expressions."""

from __future__ import annotations

from llama_py.grammar.nodes import Alt, Chars, Node, Ranges, Ref, Repeat, Rules, Seq

_SURROGATES = (0xD800, 0xDFFF)  # not characters
_NOTHING = r"[^\x{0}-\x{10FFFF}]"


def regex(node: Node, rules: Rules) -> str:
    """Return the expression of a part without recursion; "" for the empty text."""
    if isinstance(node, Chars):
        return characters(node.ranges)
    if isinstance(node, Ref):
        return regex(rules[node.name], rules)
    if isinstance(node, Seq):
        return "".join(regex(one, rules) for one in node.items)
    if isinstance(node, Alt):
        return f"(?:{'|'.join(regex(one, rules) for one in node.items)})"
    assert isinstance(node, Repeat)
    inner = regex(node.item, rules)
    return f"(?:{inner}){times(node.low, node.high)}" if inner else ""


def times(low: int, high: int | None) -> str:
    """Return a quantifier: `*`, `+`, `?` or `{2,3}`."""
    known = {(0, None): "*", (1, None): "+", (0, 1): "?"}
    return known.get((low, high)) or f"{{{low},{'' if high is None else high}}}"


def characters(ranges: Ranges) -> str:
    found = []
    for low, high in ranges:
        for a, b in ((low, min(high, _SURROGATES[0] - 1)), (max(low, _SURROGATES[1] + 1), high)):
            if a <= b:
                found.append((a, b))
    if len(found) == 1 and found[0][0] == found[0][1]:
        return one(found[0][0])
    inner = "".join(one(a) if a == b else f"{one(a)}-{one(b)}" for a, b in found)
    return f"[{inner}]" if inner else _NOTHING


def one(c: int) -> str:
    """Return a character's expression: letters and digits unchanged, others by number."""
    return chr(c) if c < 128 and chr(c).isalnum() else rf"\x{{{c:X}}}"
