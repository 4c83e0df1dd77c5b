"""Expressions with names: rules of a grammar, and tags of what is found."""

from __future__ import annotations

from llama_py.chat.peg.found import FAIL, MORE, Found, Result, Text
from llama_py.chat.peg.nodes import NOTHING, Node, choice, node, seq

MOST_PERMUTED = 6  # COMMON_CHAT_MAX_PERMUTE


class Rule(Node):
    """An expression with a name: in a grammar it stands once. trigger: a grammar may begin with it,
    within an answer."""

    def __init__(self, name: str, item: Node, trigger: bool = False) -> None:
        self.name, self.item, self.trigger = name, item, trigger

    def parse(self, text: Text, at: int) -> Result:
        return kept(self, text, at, "")


class Tag(Node):
    """An expression, what it finds under a name."""

    def __init__(self, name: str, item: Node) -> None:
        self.name, self.item = name, item

    def parse(self, text: Text, at: int) -> Result:
        return kept(self, text, at, self.name)


def kept(node: Rule | Tag, text: Text, at: int, name: str) -> Result:
    """What a rule or a tag finds, under a name if there is one; for good, if the end of the text
    did not matter."""
    key = (id(node), at)
    known = text.kept.get(key)
    if known is not None:
        text.far = max(text.far, known[1])
        return known[0]
    before, text.far = text.far, at
    state, end, found = node.item.parse(text, at)
    if state != FAIL and name:
        found = (Found(name, text.text[at:end], at, end, found, state == MORE),)
    result = Result(state, end, found) if state != FAIL else Result(FAIL, at)
    if text.far <= len(text.text):
        text.kept[key] = result, text.far
    text.far = max(text.far, before)
    return result


def rule(name: str, item: Node | str) -> Node:
    return Rule(name, node(item))


def trigger(name: str, item: Node | str) -> Node:
    return Rule(name, node(item), True)


def tag(name: str, item: Node | str) -> Node:
    return Tag(name, node(item))


def permuted(name: str, items: list[Node]) -> Node:
    """All of some, in any order (of many, in theirs)."""
    if len(items) < 2 or len(items) > MOST_PERMUTED:
        return seq(*items)
    made: dict[frozenset[int], Node] = {frozenset(): NOTHING}

    def left(places: frozenset[int]) -> Node:
        if places not in made:
            each = (items[i] + left(places - {i}) for i in sorted(places))
            made[places] = rule(f"{name}-{len(made)}", choice(*each))
        return made[places]

    return left(frozenset(range(len(items))))
