"""Steps of a pre-tokenizer that split a text into words (unicode.cpp:unicode_regex_split).

Each step splits the words of the previous one: into the matches of a pattern and the text between
matches, or into groups of three digits. The end of a word identifies it.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Any

from llama_py.support.stopping import iterate_checked
from llama_py.tokenizer.characters import CLASSES, ascii_spaces, kinds


class Views:
    """Text in the forms that patterns are matched against."""

    def __init__(self, text: str) -> None:
        self.text = text

    @cached_property
    def kinds(self) -> bytes:
        return kinds(self.text)

    @cached_property
    def text_with_ascii_spaces(self) -> str:
        """Text with ASCII white space only, as llama.cpp's std::wregex sees it."""
        return ascii_spaces(self.text)


class CutStep(ABC):
    """Step that splits words further."""

    def __init__(self, pattern: str) -> None:
        self.pattern = pattern

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and vars(self)["pattern"] == vars(other)["pattern"]

    def __hash__(self) -> int:
        return hash(self.pattern)

    @abstractmethod
    def ends(self, views: Views, ends: Iterable[int]) -> list[int]:
        """Return the ends of words, given their ends before the step."""


class PatternCut(CutStep):
    """A step that cuts by a pattern of characters."""

    @cached_property
    def _pattern(self) -> re.Pattern[str]:
        return re.compile(self.pattern, re.ASCII)

    def ends(self, views: Views, ends: Iterable[int]) -> list[int]:
        return _match(self._pattern, views.text_with_ascii_spaces, ends)


class Kinds(CutStep):
    r"""A step that splits by a pattern of kinds of characters; \p{X} is a category."""

    @cached_property
    def _pattern(self) -> re.Pattern[bytes]:
        return re.compile(_with_classes(self.pattern).encode("latin-1"))

    def ends(self, views: Views, ends: Iterable[int]) -> list[int]:
        return _match(self._pattern, views.kinds, ends)


class Threes(Kinds):
    """Step that splits matches into groups of three from the right.

    `before`: split before each complete group; else after each group, and the first includes
    the text before the digits.
    """

    def __init__(self, pattern: str, before: bool = False) -> None:
        super().__init__(pattern)
        self.before = before

    def ends(self, views: Views, ends: Iterable[int]) -> list[int]:
        found, start = [], 0
        for end in ends:
            for match in iterate_checked(self._pattern.finditer(views.kinds, start, end)):
                first, last = match.span()
                odd = (last - first) % 3
                if self.before:
                    found += [at for at in range(first + odd, last, 3) if at > start]
                else:
                    found += range(first + (odd or 3), last + 1, 3)
            if not found or found[-1] < end:
                found.append(end)
            start = end
        return found


def words(text: str, steps: Sequence[CutStep]) -> list[str]:
    """Split a text into words by the steps in sequence."""
    views, ends = Views(text), [len(text)]
    for step in steps:
        ends = step.ends(views, ends)
    return [text[a:b] for a, b in zip([0, *ends], ends, strict=False) if a < b]


def _match(pattern: re.Pattern[Any], text: str | bytes, ends: Iterable[int]) -> list[int]:
    found, start = [], 0
    for end in ends:
        for match in iterate_checked(pattern.finditer(text, start, end)):
            a, b = match.span()
            if a > start:
                found.append(a)
            found.append(b)
            start = b
        if start < end:
            found.append(end)
        start = end
    return found


def _with_classes(pattern: str) -> str:
    """Replace each \\p{X} in a pattern by its characters."""
    inside = False

    def put(match: re.Match[str]) -> str:
        nonlocal inside
        if match[1]:
            return CLASSES[match[1]] if inside else f"[{CLASSES[match[1]]}]"
        if match[0] in ("[", "]"):
            inside = match[0] == "["
        return match[0]

    return re.sub(r"\\p\{(\w+)\}|\\.|[\[\]]", put, pattern)
