"""Keys of n tokens, and their continuations (common/ngram-map.cpp)."""

from __future__ import annotations

from dataclasses import dataclass, field

from llama_py.batch import I32
from llama_py.decoding.drafting.drafters._ngram import find_pattern

N_VALUES = 4  # maximum number of counted continuations
MAX_COUNT = 16380

Gram = tuple[int, ...]


@dataclass(slots=True)
class Value:
    """Continuation of a key: its position, its count, and its accepted tokens last time."""

    at: int
    n_accepted: int
    count: int = 0


@dataclass(slots=True)
class Key:
    """Key of n tokens with its continuations.

    at      position of its first draft; counted  end of the text with counted continuations
    hits     number of lookups
    values   continuations; one for all if they are not distinguished"""

    at: int
    counted: int = 0
    hits: int = 0
    values: list[Value] = field(default_factory=list)


class NgramMap:
    """n-grams of one sequence. llama.cpp finds keys by a hash that may collide; these never do.
    If a key has several continuations, the draft is the chosen one; llama.cpp drafts the first.

    min_hits   None: draft the tokens after the key, without distinguishing continuations; else
               the key must have this number of lookups, and the most frequent of up
               to four continuations at least twice as often as the others together
    """

    def __init__(self, n: int, m: int, min_hits: int | None) -> None:
        self.n, self.m, self.min_hits = n, m, min_hits
        self.keys: dict[Gram, Key] = {}
        self._first: dict[Gram, int] = {}  # first position of a key
        self._entered = 0  # end of the text with entered keys
        self._n_prompt = 0
        self._n_checked = 0
        self._last: Value | None = None

    def begin(self, ids: I32) -> None:
        """Note that a text continues with a prompt; if it is shorter, forget its lost end."""
        size = ids.size
        if size < self._n_checked:
            keep = self._n_prompt
            if keep > size:
                keep = max(size - self.n - self.m, 0)
            self._first = {gram: at for gram, at in self._first.items() if at < keep}
            self._entered = max(keep - 1, 0)
            for key in self.keys.values():
                if self.min_hits is not None:
                    key.values = [v for v in key.values if v.at < keep]
            self.keys = {g: k for g, k in self.keys.items() if k.at < keep and k.values}
        self._n_checked = self._n_prompt = size

    def draft(self, ids: I32) -> list[int]:
        """Return a draft; the last token of ids has just been chosen."""
        n, m, end = self.n, self.m, ids.size - 1
        self._last = None
        if end < 2 * n + m:
            return []
        self._n_checked = end
        gram: Gram = tuple(ids[-n:].tolist())
        at = self._look_up(ids, gram, end)
        if at <= 0:
            return []
        key = self.keys.setdefault(gram, Key(at))
        key.hits = min(key.hits + 1, MAX_COUNT)
        value = self._choose(ids, key, gram, at)
        if value is None:
            return []
        self._last = value
        start = at + n if self.min_hits is None else value.at
        following: list[int] = ids[start : start + min(m, value.n_accepted)].tolist()
        return following

    def accept(self, n_accepted: int) -> None:
        """Note how many tokens of the last draft were accepted, the limit of the next one."""
        if self._last is not None:
            self._last.n_accepted = n_accepted

    def _look_up(self, ids: I32, gram: Gram, end: int) -> int:
        """Return the key's first position: in the prompt if possible, else after it."""
        last = end - self.n - self.m - 1
        at = self._first.get(gram, 0)
        if not 0 < at < last:
            at = 0
        prompt = self._n_prompt - self.n - self.m - 1
        for high, low in ((prompt, self._entered), (last, max(self._n_prompt, self._entered))):
            for i in range(high, low, -1):
                one = tuple(ids[i : i + self.n].tolist())
                if at == 0 and one == gram:
                    at = i
                self._first.setdefault(one, i)
        self._entered = max(last, self._entered)
        return at

    def _choose(self, ids: I32, key: Key, gram: Gram, at: int) -> Value | None:
        """Return the likely continuation of a key, or None."""
        if self.min_hits is None:
            if not key.values:
                key.values.append(Value(at, self.m))
            return key.values[0]
        if key.hits < self.min_hits:
            return None
        self._count(ids, key, gram, at)
        if not key.values:
            return None
        best = max(key.values, key=lambda value: value.count)
        others = sum(value.count for value in key.values) - best.count
        return None if others > 0 and best.count < 2 * others else best

    def _count(self, ids: I32, key: Key, gram: Gram, at: int) -> None:
        """Count the continuations up to this place, which is the first to be counted next time."""
        n, m = self.n, self.m
        for i in find_pattern(ids, gram, key.counted, at):
            start = int(i) + n
            for value in key.values:
                if (ids[start : start + m] == ids[value.at : value.at + m]).all():
                    break
            else:
                if len(key.values) == N_VALUES:
                    continue
                value = Value(start, m)
                key.values.append(value)
            value.count = min(value.count + 1, MAX_COUNT)
        key.counted = at
