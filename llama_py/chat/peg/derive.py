"""Rest of an expression after it has matched a text, for grammars.

This module flattens expressions to sequences, because tags and names do not affect matching.
"""

from __future__ import annotations

from llama_py.chat.peg.found import begins
from llama_py.chat.peg.leaves import EndOfText, TextUntil
from llama_py.chat.peg.named import NamedRule, Tag
from llama_py.chat.peg.nodes import (
    Atomic,
    ChoiceExpression,
    Expression,
    Later,
    Literal,
    Peek,
    RepeatExpression,
    SequenceExpression,
    Space,
    WithGrammar,
)

Items = tuple[Expression, ...]
MAX_DEPTH = 200  # maximum nesting of repetitions with empty items


def flat(*nodes: Expression) -> Items:
    """Flatten expressions to a sequence of items.

    A named rule remains one item, unless it ends with any text: the next item ends that text.
    """
    found: list[Expression] = []
    for node in nodes:
        if isinstance(node, SequenceExpression):
            found += flat(*node.items)
        elif isinstance(node, (Tag, Atomic, Later)):
            found += flat(node.item)
        elif isinstance(node, WithGrammar):
            found += flat(node.grammar)
        elif isinstance(node, NamedRule) and is_open(node):
            found += flat(node.item)
        elif not isinstance(node, (Peek, EndOfText)):
            found.append(node)
    return tuple(found)


def is_open(node: Expression, seen: tuple[int, ...] = ()) -> bool:
    """Return True if the expression may end with any text."""
    if id(node) in seen:
        return False
    seen = (*seen, id(node))
    if isinstance(node, TextUntil):
        return True
    if isinstance(node, SequenceExpression):
        inner = [item for item in node.items if not isinstance(item, (Peek, EndOfText))]
        return bool(inner) and is_open(inner[-1], seen)
    if isinstance(node, ChoiceExpression):
        return any(is_open(item, seen) for item in node.items)
    if isinstance(node, WithGrammar):
        return is_open(node.grammar, seen)
    if isinstance(node, (Tag, Atomic, NamedRule, RepeatExpression)):
        return is_open(node.item, seen)
    return False


def may_be_empty(items: Items) -> bool:
    return all(_may_be_empty(item) for item in items)


def _may_be_empty(node: Expression) -> bool:
    if isinstance(node, RepeatExpression):
        return node.low == 0 or _may_be_empty(node.item)
    if isinstance(node, ChoiceExpression):
        return any(map(_may_be_empty, node.items))
    if isinstance(node, Literal):
        return not node.text
    if isinstance(node, (SequenceExpression, Tag, Atomic, WithGrammar)):
        return may_be_empty(flat(node))
    return isinstance(node, (Space, TextUntil, Peek, EndOfText))


def possible_rests(text: str, items: Items) -> list[Items]:
    """Return the possible rests of a sequence after it has matched a text."""
    return [left for left, _ in _derive_rests(text, items, 0)]


def likeliest(text: str, items: Items) -> list[Items]:
    """Return the rests with the fewest characters matched as any text."""
    found = _derive_rests(text, items, 0)
    least = min((wild for _, wild in found), default=0)
    return [left for left, wild in found if wild == least]


Left = list[tuple[Items, int]]  # remaining items, and number of characters matched as any text


def _derive_rests(text: str, items: Items, depth: int) -> Left:
    if not text:
        return [(items, 0)]
    if not items or depth > MAX_DEPTH:
        return []
    first, rest = items[0], items[1:]
    if isinstance(first, Literal):
        if first.text.startswith(text):
            return [((Literal(first.text[len(text) :]), *rest), 0)]
        if text.startswith(first.text):
            return _derive_rests(text[len(first.text) :], rest, depth)
        return []
    if isinstance(first, Space):
        return _derive_rests(text.lstrip(" \t\n\v\f\r"), rest, depth)
    if isinstance(first, TextUntil):
        return _behind_any(text, first, rest, depth)
    ways = ((*inner, *rest) for inner in _ways(first))
    return [found for way in ways for found in _derive_rests(text, way, depth + 1)]


def _ways(node: Expression) -> list[Items]:
    """Return the alternatives of an expression, as sequences."""
    if isinstance(node, ChoiceExpression):
        return [flat(item) for item in node.items]
    if isinstance(node, RepeatExpression):
        if node.high == 0:
            return [()]
        more = RepeatExpression(
            node.item, max(node.low - 1, 0), node.high - 1 if node.high > 0 else -1
        )
        left = () if node.high == 1 else (more,)
        return [(*flat(node.item), *left), *([()] if node.low == 0 else [])]
    if isinstance(node, NamedRule):
        return [flat(node.item)]
    if isinstance(node, (SequenceExpression, Tag, Atomic, WithGrammar, Later)):
        return [flat(node)]
    return []  # such as JSON, which has no start delimiter


def _behind_any(text: str, node: TextUntil, rest: Items, depth: int) -> Left:
    """Return rests after any text; its end tag may be complete, partial or still missing."""
    places = [at for tag in node.tags if (at := text.find(tag)) >= 0]
    cut = min(places, default=len(text) - begins(text, node.tags))
    more = _derive_rests(text[cut:], rest, depth + 1) if cut < len(text) else []
    found = [(left, wild + cut) for left, wild in more]
    return found if places else [((node, *rest), len(text)), *found]
