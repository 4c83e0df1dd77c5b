"""Splitting of rendered texts at marks, and their differences.

chat-auto-parser-helpers.cpp:segmentize_markers, calculate_diff_split.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NamedTuple

SPACES = " \t\n\v\f\r"
MARK = r"(?:<[^>]*>|\[[^\]]*\])"
NO_MARK = rf"(?:(?!{MARK}).)*"  # with re.S
_SEGMENT = re.compile(rf"({MARK})|[^<\[]+|.+", re.S)  # the last: a bracket that is never closed
_LAST = re.compile(rf"{MARK}{NO_MARK}\Z", re.S)


class Segment(NamedTuple):
    text: str
    is_mark: bool


def segments(text: str) -> list[Segment]:
    """Split a text into marks and the texts between them."""
    return [Segment(match[0], match[1] is not None) for match in _SEGMENT.finditer(text)]


def from_last_mark(text: str) -> str:
    """Return the end of a text from its last mark; "" without a mark."""
    found = _LAST.search(text)
    return found[0] if found else ""


@dataclass(frozen=True)
class Diff:
    """Difference of two texts: common prefix, both differing parts, common suffix."""

    prefix: str
    left: str
    right: str
    suffix: str


def diff(left: str, right: str) -> Diff:
    """Compare two texts; marks are equal or different as a whole."""
    a, b = segments(left), segments(right)
    if not a or not b:
        return Diff("", left, right, "")
    found = _SegmentMatcher(a, b).diff()
    if not found.left and not found.right:
        return Diff(left, "", "", "")
    if not found.left and right.startswith(left):
        return Diff(left, "", right[len(left) :], "")
    return found


class _SegmentMatcher:
    """Equal segments, removed at both ends of two lists.

    start, end  first and last remaining segment of each list
    done        the last one is removed as well
    """

    def __init__(self, a: list[Segment], b: list[Segment]) -> None:
        self.all = a, b
        self.start, self.end, self.done = [0, 0], [len(a) - 1, len(b) - 1], [False, False]
        self.prefix = self.suffix = ""
        while not self._one(0) and not self._one(1):
            if not self._step():
                break
        self._compare_last()

    def _one(self, i: int) -> bool:
        return self.start[i] == self.end[i]

    def _get_first(self, i: int) -> Segment:
        return self.all[i][self.start[i]]

    def _final(self, i: int) -> Segment:
        return self.all[i][self.end[i]]

    def _step(self) -> bool:
        """Remove equal segments from both ends; return True if there were any."""
        same_first = self._get_first(0) == self._get_first(1)
        if same_first:
            self.prefix += self._get_first(0).text
            self.start = [start + 1 for start in self.start]
        same_final = self._final(0) == self._final(1)
        if same_final:
            self.suffix = self._final(0).text + self.suffix
            for i in (0, 1):
                self.done[i] = self._one(i)
                self.end[i] -= not self.done[i]
        return same_first or same_final

    def _compare_last(self) -> None:
        """Compare the last segment of one list with the other's first or last."""
        if self._one(0) and self._one(1):
            if self._get_first(0) == self._get_first(1) and self._get_first(0).is_mark:
                self.prefix += self._get_first(0).text
                self.done = [True, True]
            return
        for i in (0, 1):
            if not self._one(i) or self._one(1 - i):
                continue
            own, other = self._get_first(i), 1 - i
            if own == self._final(other):
                self.suffix = own.text + self.suffix
                self.end[other] -= 1
                self.done[i] = True
            elif own == self._get_first(other):
                self.prefix += own.text
                self.start[other] += 1
                self.done[i] = True
            return

    def diff(self) -> Diff:
        """Return the difference, without common prefix and suffix of texts."""
        a, b = (
            "".join(one.text for one in self.all[i][self.start[i] : self.end[i] + 1 - self.done[i]])
            for i in (0, 1)
        )
        n = m = 0
        if not self._final(0).is_mark and not self._final(1).is_mark:
            m = _n_same(a[::-1], b[::-1])
        if not self._get_first(0).is_mark and not self._get_first(1).is_mark:
            n = _n_same(a[: len(a) - m], b[: len(b) - m])
        return Diff(
            self.prefix + a[:n], a[n : len(a) - m], b[n : len(b) - m], a[len(a) - m :] + self.suffix
        )


def _n_same(a: str, b: str) -> int:
    """Return the length of the common prefix of two texts."""
    n = next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), None)
    return min(len(a), len(b)) if n is None else n
