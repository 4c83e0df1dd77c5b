"""Named expressions: grammar rules, and tags of matches."""

from __future__ import annotations

from llama_py.chat.peg.found import FAIL, MORE, ParsedText, ParseResult, TaggedPart
from llama_py.chat.peg.nodes import NOTHING, Expression, choice, node, seq

MOST_PERMUTED = 6  # COMMON_CHAT_MAX_PERMUTE


class NamedRule(Expression):
    """An expression with a name, which a grammar defines once. trigger: a grammar may begin with
    this rule, within a response."""

    def __init__(self, name: str, item: Expression, trigger: bool = False) -> None:
        self.name, self.item, self.trigger = name, item, trigger

    def parse(self, text: ParsedText, at: int) -> ParseResult:
        return name_match(self, text, at, "")


class Tag(Expression):
    """Expression that tags its match with a name."""

    def __init__(self, name: str, item: Expression) -> None:
        self.name, self.item = name, item

    def parse(self, text: ParsedText, at: int) -> ParseResult:
        return name_match(self, text, at, self.name)


def name_match(node: NamedRule | Tag, text: ParsedText, at: int, name: str) -> ParseResult:
    """Return the match of a rule or tag, under a name if given; it is final if the end of the text
    did not matter."""
    key = (id(node), at)
    known = text.kept.get(key)
    if known is not None:
        text.far = max(text.far, known[1])
        return known[0]
    before, text.far = text.far, at
    state, end, found = node.item.parse(text, at)
    if state != FAIL and name:
        found = (TaggedPart(name, text.text[at:end], at, end, found, state == MORE),)
    result = ParseResult(state, end, found) if state != FAIL else ParseResult(FAIL, at)
    if text.far <= len(text.text):
        text.kept[key] = result, text.far
    text.far = max(text.far, before)
    return result


def rule(name: str, item: Expression | str) -> Expression:
    return NamedRule(name, node(item))


def trigger(name: str, item: Expression | str) -> Expression:
    return NamedRule(name, node(item), True)


def tag(name: str, item: Expression | str) -> Expression:
    return Tag(name, node(item))


def permutation(name: str, items: list[Expression]) -> Expression:
    """Return an expression of all items in any order (in theirs, if they are many)."""
    if len(items) < 2 or len(items) > MOST_PERMUTED:
        return seq(*items)
    made: dict[frozenset[int], Expression] = {frozenset(): NOTHING}

    def remaining(places: frozenset[int]) -> Expression:
        if places not in made:
            each = (items[i] + remaining(places - {i}) for i in sorted(places))
            made[places] = rule(f"{name}-{len(made)}", choice(*each))
        return made[places]

    return remaining(frozenset(range(len(items))))
