"""Parser of GBNF, llama.cpp's grammar format (llama-grammar.cpp:llama_grammar_parser)."""

from __future__ import annotations

import re

from ggml_py.errors import GrammarError
from llama_py.grammar.nodes import (
    ANY,
    MOST,
    Alt,
    Chars,
    Node,
    Ref,
    Repeat,
    Rules,
    Seq,
    TokenChoice,
    complement,
    merge_ranges,
)
from llama_py.grammar.place import position_error

MAX_TIMES = 2000  # limit of a lower bound: MAX_REPETITION_THRESHOLD
MAX_DEPTH = 100  # maximum nesting of parentheses
MAX_CHARACTERS = 1 << 20

_NAME = re.compile("[a-zA-Z0-9-]+")
_SPACE = re.compile(r"(?:[ \t]|#[^\r\n]*)*")
_LINES = re.compile(r"(?:[ \t\r\n]|#[^\r\n]*)*")
_INT = re.compile("[0-9]+")
_END = re.compile(r"\r\n|\r|\n|\Z")
_HEX = {"x": 2, "u": 4, "U": 8}
_ESCAPES = {"t": "\t", "r": "\r", "n": "\n", **{c: c for c in '\\"[]-'}}
_TIMES = {"*": (0, None), "+": (1, None), "?": (0, 1)}


def parse(text: str) -> Rules:
    """Return the rules of a grammar by name; the last of equal names counts.

    Raises GrammarError, with line and column, for an invalid grammar, missing rules, or a missing
    rule `root`.
    """
    if len(text) > MAX_CHARACTERS:
        raise GrammarError(
            f"the grammar must have at most {MAX_CHARACTERS} characters, got {len(text)}; "
            "shorten it"
        )
    return _Parser(text).rules()


class _Parser:
    """Reads from `at` on."""

    def __init__(self, text: str) -> None:
        self.text, self.at, self.depth = text, 0, 0

    def rules(self) -> Rules:
        found: Rules = {}
        self.skip(_LINES)
        while self.at < len(self.text):
            name = self.match(_NAME, "a rule name (a-z, A-Z, 0-9, -)")
            self.skip(_SPACE)
            self.want("::=")
            self.skip(_LINES)
            found[name] = self.alternatives(nested=False)
            self.match(
                _END, 'a string ("..."), characters ([...]), a rule name or the end of the line'
            )
            self.skip(_LINES)
        if "root" not in found:
            raise position_error(self.text, 0, "rule `root` is missing; add `root ::= ...`")
        return found

    def alternatives(self, nested: bool) -> Node:
        found = [self.sequence(nested)]
        while self.peek() == "|":
            self.at += 1
            self.skip(_LINES)
            found.append(self.sequence(nested))
        return found[0] if len(found) == 1 else Alt(tuple(found))

    def sequence(self, nested: bool) -> Node:
        found: list[Node] = []
        while self.at < len(self.text):
            start = self.at
            times = self.times(nested)
            if times is None:
                item = self.item(nested)
                if item is None:
                    break
                found.append(item)
            elif found:
                found[-1] = Repeat(found[-1], *times)
            else:
                raise position_error(self.text, start, "nothing to repeat before this operator")
            self.skip(_LINES if nested else _SPACE)
        return found[0] if len(found) == 1 else Seq(tuple(found))

    def item(self, nested: bool) -> Node | None:
        c = self.peek()
        if c == '"':
            return self.literal()
        if c == "[":
            return self.characters()
        if c and c in "<!":
            return self.token()
        if c == "(":
            return self.group()
        if c == ".":
            self.at += 1
            return Chars(ANY)
        if c and _NAME.match(c):
            start = self.at
            return Ref(self.match(_NAME, "a rule"), start)
        return None

    def literal(self) -> Node:
        self.at += 1
        found: list[Node] = []
        while self.peek() != '"':
            c = self.character()
            found.append(Chars(((c, c),)))
        self.at += 1
        return found[0] if len(found) == 1 else Seq(tuple(found))

    def characters(self) -> Node:
        self.at += 1
        negated = self.peek() == "^"
        self.at += negated
        found: list[tuple[int, int]] = []
        while self.peek() != "]":
            low = high = self.character()
            if self.peek() == "-" and self.text[self.at + 1 : self.at + 2] != "]":
                self.at += 1
                start = self.at
                high = self.character()
                if high < low:
                    raise position_error(
                        self.text, start, "range end is less than its start; swap them"
                    )
            found.append((low, high))
        if not found:
            raise position_error(
                self.text, self.at, "empty character class; add characters between [ and ]"
            )
        self.at += 1
        ranges = merge_ranges(found)
        return Chars(complement(ranges) if negated else ranges)

    def token(self) -> Node:
        start, but = self.at, self.peek() == "!"
        self.at += but
        self.want("<")
        end = self.text.find(">", self.at)
        if end < 0:
            raise position_error(self.text, start, "unclosed token; write `<think>` or `<[1000]>`")
        inner, self.at = self.text[self.at : end], end + 1
        if not inner.startswith("["):
            return TokenChoice(f"<{inner}>", but, start)
        if not re.fullmatch(r"\[[0-9]{1,9}\]", inner):
            raise position_error(self.text, start, "token number must be written as `<[1000]>`")
        return TokenChoice(int(inner[1:-1]), but, start)

    def group(self) -> Node:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise position_error(
                self.text,
                self.at,
                f"parentheses must be nested at most {MAX_DEPTH} levels; use rules",
            )
        self.at += 1
        self.skip(_LINES)
        found = self.alternatives(nested=True)
        self.want(")")
        self.depth -= 1
        return found

    def times(self, nested: bool) -> tuple[int, int | None] | None:
        c = self.peek()
        if c in _TIMES:
            self.at += 1
            return _TIMES[c]
        if c != "{":
            return None
        start = self.at
        self.at += 1
        low = self.number(nested)
        high: int | None = low
        if self.peek() == ",":
            self.at += 1
            self.skip(_LINES if nested else _SPACE)
            high = self.number(nested) if _INT.match(self.peek()) else None
        self.want("}")
        if low > MAX_TIMES:
            raise position_error(
                self.text, start, f"repetitions must be at most {MAX_TIMES}, got at least {low}"
            )
        if high is not None and high < low:
            raise position_error(
                self.text,
                start,
                f"repetitions from {low} to {high}: the end is less than the start; swap them",
            )
        return low, high

    def number(self, nested: bool) -> int:
        self.skip(_LINES if nested else _SPACE)
        start, digits = self.at, self.match(_INT, "a number")
        if len(digits) > 9:
            raise position_error(self.text, start, "number is too large")
        self.skip(_LINES if nested else _SPACE)
        return int(digits)

    def character(self) -> int:
        c, start = self.peek(), self.at
        if not c:
            raise position_error(
                self.text, start, 'unclosed "..." or [...] at the end of the grammar'
            )
        self.at += 1
        if c != "\\":
            return ord(c)
        escape = self.peek()
        self.at += 1
        if escape in _ESCAPES:
            return ord(_ESCAPES[escape])
        n = _HEX.get(escape, 0)
        digits = self.text[self.at : self.at + n]
        if not n or not re.fullmatch(f"[0-9a-fA-F]{{{n}}}", digits):
            known = r"\n \r \t \\ \" \[ \] \- \x41 \u0041 \U00000041"
            raise position_error(self.text, start, f"unknown escape; known: {known}")
        self.at += n
        if int(digits, 16) > MOST:
            raise position_error(self.text, start, "character code must be at most \\U0010FFFF")
        return int(digits, 16)

    def peek(self) -> str:
        return self.text[self.at : self.at + 1]

    def skip(self, pattern: re.Pattern[str]) -> None:
        found = pattern.match(self.text, self.at)
        self.at = found.end() if found else self.at

    def match(self, pattern: re.Pattern[str], wanted: str) -> str:
        found = pattern.match(self.text, self.at)
        if found is None:
            raise position_error(self.text, self.at, f"expected {wanted}")
        self.at = found.end()
        return found[0]

    def want(self, word: str) -> None:
        if not self.text.startswith(word, self.at):
            raise position_error(self.text, self.at, f"expected {word}")
        self.at += len(word)
