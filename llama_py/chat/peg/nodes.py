"""Expressions: what a text must be, piece by piece (common/peg-parser.cpp).

A choice takes its first alternative that fits, a repetition as much as there is. Where a text ends
before an expression does, the result is MORE, with what was found so far. What was found without
looking at the end of the text is not looked for again when the text has grown.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable

from llama_py.chat.peg.found import DONE, FAIL, MORE, Found, Result, Text

UNBOUNDED = -1


class Node(ABC):
    """An expression. `a + b`: one after the other, `a << b` with spaces between, `a | b`: one of
    them; texts stand for themselves."""

    @abstractmethod
    def parse(self, text: Text, at: int) -> Result:
        """What is found of it in a text, from a place on."""

    def __add__(self, other: Node | str) -> Node:
        return seq(self, other)

    def __radd__(self, other: str) -> Node:
        return seq(other, self)

    def __lshift__(self, other: Node | str) -> Node:
        return seq(self, SPACE, other)

    def __rlshift__(self, other: str) -> Node:
        return seq(other, SPACE, self)

    def __or__(self, other: Node | str) -> Node:
        return choice(self, other)


class Literal(Node):
    def __init__(self, text: str) -> None:
        self.text = text

    def parse(self, text: Text, at: int) -> Result:
        size = len(self.text)
        if text.text.startswith(self.text, at):
            text.far = max(text.far, at + size)
            return Result(DONE, at + size)
        rest = len(text.text) - at
        if rest < size and self.text.startswith(text.text[at:]):
            text.far = len(text.text) + 1
            return Result(MORE, at)  # what there is of it may be something else
        text.far = max(text.far, at + min(size, rest))
        return Result(FAIL, at)


class Seq(Node):
    def __init__(self, items: tuple[Node, ...]) -> None:
        self.items = items

    def parse(self, text: Text, at: int) -> Result:
        found: list[Found] = []
        place = at
        for item in self.items:
            state, place, more = item.parse(text, place)
            if state == FAIL:
                return Result(FAIL, at)
            found += more
            if state == MORE:
                return Result(MORE, place, tuple(found))
        return Result(DONE, place, tuple(found))


class Choice(Node):
    def __init__(self, items: tuple[Node, ...]) -> None:
        self.items = items

    def parse(self, text: Text, at: int) -> Result:
        for item in self.items:
            result = item.parse(text, at)
            if result.state != FAIL:
                return result
        return Result(FAIL, at)


class Repeat(Node):
    def __init__(self, item: Node, low: int, high: int) -> None:
        self.item, self.low, self.high = item, low, high

    def parse(self, text: Text, at: int) -> Result:
        place, n, seen, known = text.begun.get((id(self), at), (at, 0, at, ()))
        found, settled, before = [*known], True, max(text.far, seen)
        while n != self.high and not text.at_end(place):
            text.far = place
            state, end, more = self.item.parse(text, place)
            before = max(before, text.far)
            settled = settled and text.far <= len(text.text)
            if state == FAIL or (state == DONE and end == place):
                break
            found += more
            place = end
            if state == MORE:
                text.far = before
                return Result(MORE, place, tuple(found))
            n += 1
            if settled:  # for good: it goes on from here when the text has grown
                text.begun[id(self), at] = place, n, before, tuple(found) if more else known
                known = text.begun[id(self), at][3]
        text.far = max(text.far, before)
        if n < self.low:
            state = MORE if text.at_end(place) else FAIL
            return Result(state, place, tuple(found) if state else ())
        return Result(DONE, place, tuple(found))


class Peek(Node):
    """What must come next, but is not taken; or must not."""

    def __init__(self, item: Node, wanted: bool) -> None:
        self.item, self.wanted = item, wanted

    def parse(self, text: Text, at: int) -> Result:
        state = self.item.parse(text, at).state
        if state == MORE:
            return Result(MORE, at)
        return Result(DONE if (state == DONE) == self.wanted else FAIL, at)


class Space(Node):
    """Spaces and new lines, or nothing. A grammar takes a few."""

    _pattern = re.compile(r"[ \t\n\v\f\r]*")

    def parse(self, text: Text, at: int) -> Result:
        match = self._pattern.match(text.text, at)
        end = match.end() if match else at
        text.at_end(end)
        return Result(DONE, end)


class Atomic(Node):
    """An expression of which nothing is found before it is whole."""

    def __init__(self, item: Node) -> None:
        self.item = item

    def parse(self, text: Text, at: int) -> Result:
        state, end, found = self.item.parse(text, at)
        return Result(state, end, () if state == MORE else found)


class As(Node):
    """An expression for which a grammar has another."""

    def __init__(self, item: Node, grammar: Node) -> None:
        self.item, self.grammar = item, grammar

    def parse(self, text: Text, at: int) -> Result:
        return self.item.parse(text, at)


class Schema(Node):
    """JSON; a grammar takes only that of a schema."""

    def __init__(self, item: Node, schema: object) -> None:
        self.item, self.schema = item, schema

    def parse(self, text: Text, at: int) -> Result:
        return self.item.parse(text, at)


class Later(Node):
    """An expression that is made when it is needed: it may be within itself."""

    def __init__(self, make: Callable[[], Node]) -> None:
        self._make = make
        self._made: Node | None = None

    @property
    def item(self) -> Node:
        if self._made is None:
            self._made = self._make()
        return self._made

    def parse(self, text: Text, at: int) -> Result:
        return self.item.parse(text, at)


SPACE, NOTHING = Space(), Seq(())


def lit(text: str) -> Node:
    return Literal(text) if text else NOTHING


def node(item: Node | str) -> Node:
    return lit(item) if isinstance(item, str) else item


def seq(*items: Node | str) -> Node:
    """One after the other."""
    flat: list[Node] = []
    for item in map(node, items):
        flat += item.items if isinstance(item, Seq) else [item]
    return flat[0] if len(flat) == 1 else Seq(tuple(flat))


def choice(*items: Node | str) -> Node:
    """The first of some that fits."""
    flat: list[Node] = []
    for item in map(node, items):
        flat += item.items if isinstance(item, Choice) else [item]
    return flat[0] if len(flat) == 1 else Choice(tuple(flat))


def optional(item: Node | str) -> Node:
    return Repeat(node(item), 0, 1)


def many(item: Node | str, low: int = 0, high: int = UNBOUNDED) -> Node:
    return Repeat(node(item), low, high)


def peek(item: Node | str) -> Node:
    return Peek(node(item), True)


def never(item: Node | str) -> Node:
    return Peek(node(item), False)


def atomic(item: Node | str) -> Node:
    return Atomic(node(item))


def spaced(text: str) -> Node:
    """A text whose spaces around may be left out."""
    inner = text.strip()
    before, _, after = text.partition(inner) if inner else (text, "", "")
    return seq(*map(optional, before), inner, *map(optional, after))


def joined(items: Iterable[Node], between: Node | str) -> Node:
    """Items with something between."""
    found: list[Node | str] = []
    for item in items:
        found += [between, item] if found else [item]
    return seq(*found)
