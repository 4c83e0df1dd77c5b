"""Constraint that applies from a trigger on, such as the tag that starts a tool call."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from llama_py.sampler.candidates import Candidates
from llama_py.sampler.grammar import ByGrammar
from llama_py.tokenizer import Tokenizer

BACK = 256  # characters before a token that may belong to a pattern


@dataclass(frozen=True)
class Triggers:
    """Strings and patterns that start a constraint.

    words     strings; ignored within reasoning
    patterns  regular expressions; if one has a group, the group's start counts
    start, ends  tags before and after reasoning; an end that is a word is a trigger
    prompt    the text before the response, which may start with reasoning
    """

    words: tuple[str, ...] = ()
    patterns: tuple[str, ...] = ()
    start: str = ""
    ends: tuple[str, ...] = ()
    prompt: str = ""


class Scan:
    """Search for a trigger in a growing text."""

    def __init__(self, triggers: Triggers) -> None:
        words, start = triggers.words, triggers.start if triggers.ends else ""
        self.patterns = [re.compile(pattern.encode()) for pattern in triggers.patterns]
        self.words = tuple(word.encode() for word in words)
        self.outside = _alternatives((*words, *([start] if start else ())))
        self.inside = _alternatives(triggers.ends)
        self.start = start.encode()
        self.longest = max(map(len, (*self.words, self.start, *map(str.encode, triggers.ends))))
        self.text, self.at, self.thinks = b"", 0, False
        self.n_prompt = len(triggers.prompt.encode())
        self.found: int | None = None
        self.add_text(triggers.prompt.encode())

    def copy(self) -> Scan:
        return copy.copy(self)

    def add_text(self, text: bytes) -> bool:
        """Add text and return True if a trigger was found; `found` is its position."""
        before = len(self.text)
        self.text += text
        if self.found is None:
            self._by_pattern(max(0, before - BACK))
        while self.found is None and self._step():
            pass
        return self.found is not None

    def _by_pattern(self, start: int) -> None:
        for pattern in self.patterns:
            match = pattern.search(self.text, start)
            if match:
                begins = match.start(1) if pattern.groups else match.start()
                self.found = max(begins, self.n_prompt)
                return

    def _step(self) -> bool:
        """Process the next tag; return False if no tag follows."""
        pattern = self.inside if self.thinks else self.outside
        match = pattern.search(self.text, self.at) if pattern else None
        if match is None:
            self.at = max(self.at, len(self.text) - self.longest + 1)
            return False
        if match[0] in self.words:
            self.found = max(match.start(), self.n_prompt)
            return False
        self.thinks, self.at = not self.thinks, match.end()
        return True


def _alternatives(tags: Sequence[str]) -> re.Pattern[bytes] | None:
    longest_first = sorted(tags, key=len, reverse=True)
    return re.compile(b"|".join(re.escape(t.encode()) for t in longest_first)) if tags else None


class TriggeredConstraint:
    """Allow any text up to a trigger; then apply `inner`, which starts with the trigger."""

    def __init__(
        self,
        inner: ByGrammar,
        tokenizer: Tokenizer,
        triggers: Triggers,
        split: Callable[[bytes], list[int]],
    ) -> None:
        """split: returns the tokens of a text, without longer tokens."""
        self.inner, self.pieces, self.eog = inner, tokenizer.pieces, tokenizer.eog
        self._split, self._first = split, Scan(triggers)
        self.reset()

    def reset(self) -> None:
        self.inner.reset()
        self.scan = self._first.copy()
        self.holds = False
        if self.scan.found is not None:
            self._begin(self.scan)

    def copy(self) -> TriggeredConstraint:
        other = copy.copy(self)
        other.inner, other.scan = self.inner.copy(), self.scan.copy()
        return other

    def allows(self, id: int) -> bool:
        if self.holds:
            return self.inner.allows(id)
        if not 0 <= id < len(self.pieces):
            return False
        scan = self.scan.copy()
        if id in self.eog or not scan.add_text(self.pieces[id]):
            return True
        ids = self._split(scan.text[scan.found :])
        return self.inner.n_allowed(ids) == len(ids)

    def n_allowed(self, ids: Sequence[int]) -> int:
        if self.holds:
            return self.inner.n_allowed(ids)
        trial = self.copy()
        for n, id in enumerate(ids):
            if trial.holds:
                return n + trial.inner.n_allowed(ids[n:])
            if not trial.allows(id):
                return n
            trial.accept(id)
        return len(ids)

    def apply(self, c: Candidates) -> Candidates:
        if self.holds:
            return self.inner.apply(c)
        left = c.logits.copy()
        left[[id for id in range(len(self.pieces)) if not self.allows(id)]] = -np.inf
        left[len(self.pieces) :] = -np.inf
        return Candidates(c.ids, left)

    def accept(self, id: int) -> None:
        if self.holds:
            self.inner.accept(id)
        elif id not in self.eog and self.scan.add_text(self.pieces[id]):
            self._begin(self.scan)

    def _begin(self, scan: Scan) -> None:
        self.holds = True
        for id in self._split(scan.text[scan.found :]):
            self.inner.accept(id)

    @property
    def complete(self) -> bool:
        return not self.holds or self.inner.complete
