"""Validity checks of a grammar's rules."""

from __future__ import annotations

from collections import defaultdict

from llama_py.grammar.nodes import Alt, Chars, Node, Ref, Repeat, Rules, Seq, TokenChoice, refs
from llama_py.grammar.place import position_error


def check(rules: Rules, text: str) -> None:
    """Raise GrammarError for a rule that is missing or never ends."""
    for node in rules.values():
        for ref in refs(node):
            if ref.name not in rules:
                raise position_error(text, ref.at, f"unknown rule `{ref.name}`")
    endless = set(rules) - ending(rules)
    for name in rules:
        if name in endless:
            at = next(ref.at for ref in refs(rules[name]) if ref.name in endless)
            raise position_error(
                text, at, f"rule `{name}` never ends: each of its alternatives needs another rule"
            )


def ending(rules: Rules) -> set[str]:
    """Return the rules that some finite text matches."""
    users = defaultdict(set)
    for name, node in rules.items():
        for ref in refs(node):
            users[ref.name].add(name)
    found: set[str] = set()
    left = set(rules)
    while left:
        name = left.pop()
        if name not in found and _ends(rules[name], found):
            found.add(name)
            left |= users[name] - found
    return found


def _ends(node: Node, ending: set[str]) -> bool:
    if isinstance(node, Ref):
        return node.name in ending
    if isinstance(node, Seq):
        return all(_ends(one, ending) for one in node.items)
    if isinstance(node, Alt):
        return any(_ends(one, ending) for one in node.items)
    if isinstance(node, Repeat):
        return node.low == 0 or _ends(node.item, ending)
    assert isinstance(node, (Chars, TokenChoice))
    return True
