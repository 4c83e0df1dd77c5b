"""Expressions that define the pieces of a text (common/peg-parser.cpp).

A choice takes its first matching alternative, a repetition the maximum number of items. If a text
ends before an expression does, the result is MORE, with the matches found before. Matches that did
not depend on the end of the text are cached when the text grows.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable

from llama_py.chat.peg.found import DONE, FAIL, MORE, ParsedText, ParseResult, TaggedPart

UNBOUNDED = -1


class Expression(ABC):
    """An expression. `a + b`: a sequence, `a << b`: a sequence with spaces between, `a | b`: a
    choice; strings match themselves."""

    @abstractmethod
    def parse(self, text: ParsedText, at: int) -> ParseResult:
        """Parse the text from `at` on and return the match."""

    def __add__(self, other: Expression | str) -> Expression:
        return seq(self, other)

    def __radd__(self, other: str) -> Expression:
        return seq(other, self)

    def __lshift__(self, other: Expression | str) -> Expression:
        return seq(self, SPACE, other)

    def __rlshift__(self, other: str) -> Expression:
        return seq(other, SPACE, self)

    def __or__(self, other: Expression | str) -> Expression:
        return choice(self, other)


class Literal(Expression):
    def __init__(self, text: str) -> None:
        self.text = text

    def parse(self, text: ParsedText, at: int) -> ParseResult:
        size = len(self.text)
        if text.text.startswith(self.text, at):
            text.far = max(text.far, at + size)
            return ParseResult(DONE, at + size)
        rest = len(text.text) - at
        if rest < size and self.text.startswith(text.text[at:]):
            text.far = len(text.text) + 1
            return ParseResult(MORE, at)  # the partial match may be another text
        text.far = max(text.far, at + min(size, rest))
        return ParseResult(FAIL, at)


class SequenceExpression(Expression):
    def __init__(self, items: tuple[Expression, ...]) -> None:
        self.items = items

    def parse(self, text: ParsedText, at: int) -> ParseResult:
        found: list[TaggedPart] = []
        place = at
        for item in self.items:
            state, place, more = item.parse(text, place)
            if state == FAIL:
                return ParseResult(FAIL, at)
            found += more
            if state == MORE:
                return ParseResult(MORE, place, tuple(found))
        return ParseResult(DONE, place, tuple(found))


class ChoiceExpression(Expression):
    def __init__(self, items: tuple[Expression, ...]) -> None:
        self.items = items

    def parse(self, text: ParsedText, at: int) -> ParseResult:
        for item in self.items:
            result = item.parse(text, at)
            if result.state != FAIL:
                return result
        return ParseResult(FAIL, at)


class RepeatExpression(Expression):
    def __init__(self, item: Expression, low: int, high: int) -> None:
        self.item, self.low, self.high = item, low, high

    def parse(self, text: ParsedText, at: int) -> ParseResult:
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
                return ParseResult(MORE, place, tuple(found))
            n += 1
            if settled:  # final: continue here when the text has grown
                text.begun[id(self), at] = place, n, before, tuple(found) if more else known
                known = text.begun[id(self), at][3]
        text.far = max(text.far, before)
        if n < self.low:
            state = MORE if text.at_end(place) else FAIL
            return ParseResult(state, place, tuple(found) if state else ())
        return ParseResult(DONE, place, tuple(found))


class Peek(Expression):
    """Expression that must, or must not, follow, but is not consumed."""

    def __init__(self, item: Expression, wanted: bool) -> None:
        self.item, self.wanted = item, wanted

    def parse(self, text: ParsedText, at: int) -> ParseResult:
        state = self.item.parse(text, at).state
        if state == MORE:
            return ParseResult(MORE, at)
        return ParseResult(DONE if (state == DONE) == self.wanted else FAIL, at)


class Space(Expression):
    """Optional spaces and newlines. A grammar limits their number."""

    _pattern = re.compile(r"[ \t\n\v\f\r]*")

    def parse(self, text: ParsedText, at: int) -> ParseResult:
        match = self._pattern.match(text.text, at)
        end = match.end() if match else at
        text.at_end(end)
        return ParseResult(DONE, end)


class Atomic(Expression):
    """An expression that has no matches before it is complete."""

    def __init__(self, item: Expression) -> None:
        self.item = item

    def parse(self, text: ParsedText, at: int) -> ParseResult:
        state, end, found = self.item.parse(text, at)
        return ParseResult(state, end, () if state == MORE else found)


class WithGrammar(Expression):
    """An expression with a separate grammar."""

    def __init__(self, item: Expression, grammar: Expression) -> None:
        self.item, self.grammar = item, grammar

    def parse(self, text: ParsedText, at: int) -> ParseResult:
        return self.item.parse(text, at)


class Schema(Expression):
    """JSON; a grammar only accepts JSON of a schema."""

    def __init__(self, item: Expression, schema: object) -> None:
        self.item, self.schema = item, schema

    def parse(self, text: ParsedText, at: int) -> ParseResult:
        return self.item.parse(text, at)


class Later(Expression):
    """An expression that is created when needed, so it may contain itself."""

    def __init__(self, make: Callable[[], Expression]) -> None:
        self._make = make
        self._made: Expression | None = None

    @property
    def item(self) -> Expression:
        if self._made is None:
            self._made = self._make()
        return self._made

    def parse(self, text: ParsedText, at: int) -> ParseResult:
        return self.item.parse(text, at)


SPACE, NOTHING = Space(), SequenceExpression(())


def lit(text: str) -> Expression:
    return Literal(text) if text else NOTHING


def node(item: Expression | str) -> Expression:
    return lit(item) if isinstance(item, str) else item


def seq(*items: Expression | str) -> Expression:
    """Return a sequence of expressions."""
    flat: list[Expression] = []
    for item in map(node, items):
        flat += item.items if isinstance(item, SequenceExpression) else [item]
    return flat[0] if len(flat) == 1 else SequenceExpression(tuple(flat))


def choice(*items: Expression | str) -> Expression:
    """Return a choice of the first alternative that matches."""
    flat: list[Expression] = []
    for item in map(node, items):
        flat += item.items if isinstance(item, ChoiceExpression) else [item]
    return flat[0] if len(flat) == 1 else ChoiceExpression(tuple(flat))


def optional(item: Expression | str) -> Expression:
    return RepeatExpression(node(item), 0, 1)


def repetition(item: Expression | str, low: int = 0, high: int = UNBOUNDED) -> Expression:
    return RepeatExpression(node(item), low, high)


def peek(item: Expression | str) -> Expression:
    return Peek(node(item), True)


def never(item: Expression | str) -> Expression:
    return Peek(node(item), False)


def atomic(item: Expression | str) -> Expression:
    return Atomic(node(item))


def optional_spaces(text: str) -> Expression:
    """Return a text with optional outer spaces."""
    inner = text.strip()
    before, _, after = text.partition(inner) if inner else (text, "", "")
    return seq(*map(optional, before), inner, *map(optional, after))


def join_items(items: Iterable[Expression], between: Expression | str) -> Expression:
    """Join items with `between`."""
    found: list[Expression | str] = []
    for item in items:
        found += [between, item] if found else [item]
    return seq(*found)
