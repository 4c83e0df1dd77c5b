"""Conversion of an expression to a Lark grammar for llguidance.

Text before a tag is one lexeme with its tag, so that it ends there.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

from llama_py.chat.peg.derive import Items, flat, is_open, likeliest, may_be_empty, possible_rests
from llama_py.chat.peg.leaves import CharacterRun, QuotedText, TextUntil
from llama_py.chat.peg.named import NamedRule
from llama_py.chat.peg.nodes import (
    ChoiceExpression,
    Expression,
    Literal,
    RepeatExpression,
    Schema,
    Space,
)
from llama_py.chat.peg.values import JSON, NUMBER
from llama_py.grammar.schema import enforce_schema

SPACES = r"/ |\n{1,2}[ \t]{0,20}/"
ANY = "(?s:.*)"
SPECIAL = frozenset(r"\.+*?()|[]{}^$#&-~/")
NUMBERS = r"/-?(0|[1-9][0-9]{0,15})(\.[0-9]{1,16})?([eE][-+]?[0-9]{1,3})?/"
MAX_WAYS = 64  # maximum alternatives after a text


def write_lark(root: Expression, prompt: str, lazy: bool) -> str:
    """Return the grammar of a response after the prompt's end; lazy: after a trigger."""
    writer = _Writer()
    if lazy:
        starts = [flat(node) for node in _triggers(root)]
    else:
        starts = likeliest(prompt, flat(root)) or [flat(root)]
    text = " | ".join(dict.fromkeys(writer.sequence(items) for items in starts))
    return "\n".join((f"start: {text}", *writer.lines)) + "\n"


def _triggers(root: Expression) -> list[Expression]:
    """Return the rules that may start a lazy grammar."""
    return [
        node.item for node in iterate_nodes(root) if isinstance(node, NamedRule) and node.trigger
    ]


def iterate_nodes(root: Expression) -> Iterator[Expression]:
    """Yield each part of an expression once."""
    left, seen = [root], set[int]()
    while left:
        node = left.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        yield node
        inner = getattr(node, "items", None) or [getattr(node, "item", None)]
        left += [one for one in inner if isinstance(one, Expression)]


class _Writer:
    def __init__(self) -> None:
        self.lines: list[str] = []
        self._names: dict[object, str] = {}

    def sequence(self, items: Items) -> str:
        """Write parts in sequence; combine parts that depend on their successor with it."""
        found: list[str] = []
        text = ""
        for i, item in enumerate(items):
            rest = items[i + 1 :]
            if isinstance(item, Literal):
                text += item.text
                continue
            found += [_quote(text)] if text else []
            text = ""
            if isinstance(item, TextUntil):
                return " ".join([*found, self._write_until(item, rest)])
            if is_open(item) and isinstance(item, (ChoiceExpression, RepeatExpression)):
                return " ".join([*found, self._spread(item, rest)])
            found.append(self._part(item))
        found += [_quote(text)] if text else []
        return " ".join(found) or '""'

    def _spread(self, item: ChoiceExpression | RepeatExpression, rest: Items) -> str:
        """Write an expression that may end with any text, together with its successor."""
        if isinstance(item, ChoiceExpression):
            ways = [flat(one) for one in item.items]
        elif item.high == 1:
            ways = [flat(item.item)]
            if item.low == 0 and not may_be_empty(ways[0]):
                ways.append(())
        else:  # unbounded: it includes any text
            ways = (
                [(TextUntil(()),)] if may_be_empty(rest) else [(TextUntil(_tags(flat(item.item))),)]
            )
        return _either([self.sequence((*way, *rest)) for way in ways])

    def _write_until(self, item: TextUntil, rest: Items) -> str:
        found = []
        for tag in item.tags:
            ways = possible_rests(tag, rest)[:MAX_WAYS]
            if ways:
                tails = _either([self.sequence(way) for way in ways])
                found.append(f"{self._write_through(tag, item)} {tails}")
        if may_be_empty(rest) or not found:
            found.append(self._write_without_tags(item.tags))
        return _either(found)

    def _write_through(self, tag: str, item: TextUntil) -> str:
        """Write text up to a tag, and the tag."""
        if item.terminal:
            pattern = pattern_of_text(tag)
            return self._name_rule(
                ("terminal", tag, item.terminal),
                f"T{{}}: ({item.terminal} /{pattern}/) & ~/{ANY}{pattern}(?s:.+)/",
            )
        if len(item.tags) == 1 and not item.but:
            return self._name_rule(
                ("up to", tag), "u{}[lazy]: " + f"/(?s:.*?){pattern_of_text(tag)}/"
            )
        others = "|".join(map(pattern_of_text, item.tags))
        but = f" & ~/{pattern_of_text(item.but)}{ANY}/" if item.but else ""
        return self._name_rule(
            ("up to", tag, item.tags, item.but),
            "T{}: " + f"/{ANY}{pattern_of_text(tag)}/ & ~/{ANY}({others})(?s:.+)/{but}",
        )

    def _write_without_tags(self, tags: tuple[str, ...]) -> str:
        if not tags:
            return f"/{ANY}/"
        others = "|".join(map(pattern_of_text, tags))
        return self._name_rule(("without", tags), "T{}: " + f"/{ANY}/ & ~/{ANY}({others}){ANY}/")

    def _name_rule(self, key: object, line: str) -> str:
        if key not in self._names:
            head, _, body = line.partition("{}")  # first one only: a pattern may have braces
            self._names[key] = f"{head}{len(self._names)}"
            self.lines.append(self._names[key] + body)
        return self._names[key]

    def _part(self, item: Expression) -> str:
        if item is JSON:
            return self._json({})
        if item is NUMBER:
            return NUMBERS
        if isinstance(item, Schema):
            return self._json(item.schema)
        if isinstance(item, Space):
            return f"{SPACES}?"
        if isinstance(item, CharacterRun):
            high = "" if item.high < 0 else item.high
            return f"/({item.characters}){{{item.low},{high}}}/"
        if isinstance(item, QuotedText):
            escape = rf"\\([{item.quote}\\\/bfnrt]|u[0-9a-fA-F]{{4}})"
            return rf"/([^{item.quote}\\\x00-\x1f]|{escape})*/"
        if isinstance(item, ChoiceExpression):
            return _either([self.sequence(flat(one)) for one in item.items])
        if isinstance(item, RepeatExpression):
            return self._repeat(item)
        assert isinstance(item, NamedRule), item
        return self._rule(item)

    def _repeat(self, item: RepeatExpression) -> str:
        inner = f"({self.sequence(flat(item.item))})"
        times = {(0, 1): "?", (0, -1): "*", (1, -1): "+", (1, 1): ""}.get((item.low, item.high))
        if times is None:
            times = f"{{{item.low},{'' if item.high < 0 else item.high}}}"
        return inner + times

    def _rule(self, item: NamedRule) -> str:
        key = ("rule", id(item))
        if key not in self._names:
            name = self._names[key] = f"r{len(self._names)}"
            at = len(self.lines)
            self.lines.append("")
            self.lines[at] = f"{name}: {self.sequence(flat(item.item))}"
        return self._names[key]

    def _json(self, schema: object) -> str:
        text = enforce_schema(json.dumps(schema)).in_lark
        key = ("json", text)
        if key not in self._names:
            self._names[key] = f"j{len(self._names)}"
            self.lines.append(f"{self._names[key]}: %json {text}")
        return self._names[key]


def _tags(items: Items) -> tuple[str, ...]:
    last = items[-1]
    return last.tags if isinstance(last, TextUntil) else ()


def _either(texts: list[str]) -> str:
    texts = list(dict.fromkeys(texts))
    return texts[0] if len(texts) == 1 else f"({' | '.join(texts)})"


def _quote(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def pattern_of_text(text: str) -> str:
    """Return a regular expression in Lark that takes only this text."""
    escaped = "".join(f"\\{c}" if c in SPECIAL else c for c in text)
    return escaped.replace("\n", "\\n").replace("\t", "\\t").replace("\r", "\\r")
