"""Expressions of characters: character classes, quoted texts, text before a tag, the end."""

from __future__ import annotations

import re

from llama_py.chat.peg.found import DONE, FAIL, MORE, ParsedText, ParseResult, begins
from llama_py.chat.peg.nodes import UNBOUNDED, Expression, Literal


class EndOfText(Expression):
    def parse(self, text: ParsedText, at: int) -> ParseResult:
        return ParseResult(DONE if text.at_end(at) else FAIL, at)


class CharacterRun(Expression):
    """A leaf that matches the maximum number of characters of a class, at minimum `low`."""

    def __init__(self, characters: str, low: int, high: int) -> None:
        self.characters, self.low, self.high = characters, low, high
        times = f"{{0,{'' if high == UNBOUNDED else high}}}"
        self._pattern = re.compile(f"(?:{characters}){times}")

    def parse(self, text: ParsedText, at: int) -> ParseResult:
        match = self._pattern.match(text.text, at)
        end = match.end() if match else at
        if end - at != self.high:
            text.at_end(end)
        if end - at < self.low:
            return ParseResult(MORE if text.at_end(end) else FAIL, end)
        return ParseResult(DONE, end)


class QuotedText(Expression):
    """Text between quotes with JSON's escapes, without the quotes."""

    def __init__(self, quote: str) -> None:
        self.quote = quote
        hexadecimal = "[0-9a-fA-F]"
        escape, other = rf"\\(?:[{quote}\\/bfnrt]|u{hexadecimal}{{4}})", rf"[^{quote}\\]*"
        self._pattern = re.compile(rf"{other}(?:{escape}{other})*")
        self._begun = re.compile(rf"\\(?:u{hexadecimal}{{0,3}})?\Z")

    def parse(self, text: ParsedText, at: int) -> ParseResult:
        match = self._pattern.match(text.text, at)
        end = match.end() if match else at
        if text.at_end(end):
            return ParseResult(MORE, end)
        if text.text[end] == self.quote:
            return ParseResult(DONE, end)
        if self._begun.match(text.text, end):
            text.far = len(text.text) + 1
            return ParseResult(MORE, end)
        return ParseResult(FAIL, at)


class TextUntil(Expression):
    """Text before the first of some tags, or before a possible start of a tag; without tags, all.

    but: forbidden start; terminal: its Lark terminal in a grammar (empty: any text)
    """

    def __init__(self, tags: tuple[str, ...], but: str = "", terminal: str = "") -> None:
        self.tags, self.but, self.terminal = tags, but, terminal
        self._pattern = re.compile("|".join(map(re.escape, tags))) if tags else None

    def parse(self, text: ParsedText, at: int) -> ParseResult:
        if self.but:
            state = Literal(self.but).parse(text, at).state
            if state != FAIL:
                return ParseResult(MORE if state == MORE else FAIL, at)
        found = self._pattern.search(text.text, at) if self._pattern else None
        if found:
            text.far = max(text.far, found.end())
            return ParseResult(DONE, found.start())
        text.far = len(text.text) + 1
        begun = begins(text.text[at:], self.tags)
        if begun:
            text.cut = len(text.text) - begun
            return ParseResult(DONE, text.cut)
        return ParseResult(MORE, len(text.text))


END = EndOfText()


def text_until(*tags: str, but: str = "") -> Expression:
    return TextUntil(tags, but)


def rest() -> Expression:
    return TextUntil(())


def characters(pattern: str, low: int = 1, high: int = UNBOUNDED) -> Expression:
    """Return an expression of `low` to `high` characters; `pattern`: a regular character class."""
    return CharacterRun(pattern, low, high)
