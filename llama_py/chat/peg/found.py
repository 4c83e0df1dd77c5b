"""Matches of expressions in a growing text."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

FAIL, DONE, MORE = 0, 1, 2  # mismatch; match; undecided before more text arrives


class TaggedPart(NamedTuple):
    """A part of a text that has a name: a tag's, or a rule's.

    partial: the text ends within it
    """

    name: str
    text: str
    start: int
    end: int
    parts: tuple[TaggedPart, ...]
    partial: bool

    def find_first(self, name: str) -> TaggedPart | None:
        """Return the first part of that name at any depth."""
        for part in self.parts:
            if part.name == name:
                return part
            inner = part.find_first(name)
            if inner is not None:
                return inner
        return None


class ParseResult(NamedTuple):
    """state: FAIL, DONE or MORE; end: end of the match."""

    state: int
    end: int
    found: tuple[TaggedPart, ...] = ()


# State of a repetition: end of final items, their number, furthest position read, and matches.
Begun = tuple[int, int, int, tuple[TaggedPart, ...]]


@dataclass
class ParsedText:
    """Received text, and its final matches.

    far   position up to which the current parse has read; beyond the end if the result depends
          on the end and may change with more text
    cut   position of omitted text that may become a tag, or -1
    """

    text: str = ""
    far: int = 0
    cut: int = -1
    kept: dict[tuple[int, int], tuple[ParseResult, int]] = field(default_factory=dict)
    begun: dict[tuple[int, int], Begun] = field(default_factory=dict)

    def at_end(self, place: int) -> bool:
        """Return True if the text ends there; the result then depends on the end."""
        if place < len(self.text):
            if place >= self.far:
                self.far = place + 1
            return False
        self.far = len(self.text) + 1
        return True


@lru_cache(256)
def _beginnings(tags: tuple[str, ...]) -> frozenset[str]:
    return frozenset(tag[:n] for tag in tags for n in range(1, len(tag)))


def begins(text: str, tags: tuple[str, ...]) -> int:
    """Return the length of the longest end of a text that may begin a tag."""
    known, longest = _beginnings(tags), max(map(len, tags), default=1)
    for n in range(min(len(text), longest - 1), 0, -1):
        if text[-n:] in known:
            return n
    return 0
