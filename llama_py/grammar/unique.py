"""Constraint that objects of a JSON response have each key once, which a grammar cannot express."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from copy import copy
from typing import Any, NamedTuple

import numpy as np

# Complete characters and escapes; the first half of a surrogate pair is incomplete.
_COMPLETE = re.compile(
    rb"(?:[^\\]|\\[^u]|\\u(?!d[89ab])[0-9a-f]{4}|\\ud[89ab]..\\ud[c-f]..)*", re.I | re.S
)
# Patterns of tokens that may begin or complete a key, by the part of the response before them.
_MATTERS = {"value": b",", "string": b'".*,', "comma": b'"', "key": rb'["\\]'}


class JSONEnd(NamedTuple):
    """The end of an incomplete JSON text.

    Attributes:
        open: The keys of each open object; None for an open array.
        part: `string` or `key` within quotes, `comma` before a key, `value` elsewhere.
        raw: The bytes of an incomplete key.
        escapes: True after the backslash of an escape.
    """

    open: tuple[frozenset[str] | None, ...] = ()
    part: str = "value"
    raw: bytes = b""
    escapes: bool = False

    def advance(self, text: bytes) -> JSONEnd | None:
        """Return the place after more text; None if the text repeats a key."""
        open, part, raw, escapes = self
        if part == "string" and not escapes and b'"' not in text and b"\\" not in text:
            return self
        for c in map(bytes, zip(text, strict=True)):
            if part in ("string", "key") and (escapes or c != b'"'):
                raw += c if part == "key" else b""
                escapes = c == b"\\" and not escapes
            elif part == "key":
                key, keys = _decode(raw), open[-1] or frozenset()
                if key in keys:
                    return None
                open, part, raw = (*open[:-1], keys | {key}), "value", b""
            elif c == b'"':
                part = {"comma": "key", "string": "value"}.get(part, "string")
            elif c == b"{":
                open, part = (*open, frozenset()), "comma"
            elif c == b"[":
                open = (*open, None)
            elif c in b"}]":
                open, part = open[:-1], "value"
            elif c == b"," and open and open[-1] is not None:
                part = "comma"
        return JSONEnd(open, part, raw, escapes)

    def rests(self) -> list[bytes]:
        """Return the rests of the keys of the object that the next key may repeat."""
        keys = self.open[-1] if self.part in ("comma", "key") else None
        if not keys:
            return []
        start = _decode(self._complete)
        found = (key.removeprefix(start) for key in keys if key.startswith(start))
        return [rest.encode("utf-8", "surrogatepass") for rest in found]

    @property
    def ends_within(self) -> bool:
        """True within an escape or a character of a key."""
        return len(self._complete.decode("utf-8", "ignore").encode()) < len(self.raw)

    @property
    def _complete(self) -> bytes:
        found = _COMPLETE.match(self.raw)
        return found[0] if found else b""


def _decode(raw: bytes) -> str:
    return str(json.loads(f'"{raw.decode("utf-8", "ignore")}"', strict=False))


class TokenTexts(list[bytes]):
    """The texts of a vocabulary's tokens."""

    def __init__(self, pieces: Sequence[bytes]) -> None:
        super().__init__(pieces)
        self._ids: dict[bytes, list[int]] = {}
        for id, piece in enumerate(pieces):
            self._ids.setdefault(piece, []).append(id)
        self._matter = {
            part: [id for id, piece in enumerate(pieces) if re.search(pattern, piece, re.S)]
            for part, pattern in _MATTERS.items()
        }

    def which_matter(self, place: JSONEnd) -> Sequence[int]:
        """Return all tokens that may repeat a key, or that only a repeated key may continue."""
        rests = place.rests()
        if place.part not in ("comma", "key") or not rests:
            return self._matter["value" if place.part == "value" else "string"]
        if place.ends_within:
            return range(len(self))
        starts = {rest[:n] for rest in rests for n in range(1, len(rest) + 1)}
        more = starts if place.part == "key" else ()
        return [*self._matter[place.part], *(id for one in more for id in self._ids.get(one, ()))]


class UniqueKeys:
    """An LLMatcher of JSON responses that also refuses tokens that would repeat an object's key.

    It refuses a token as well if only repeated keys could follow: the comma after the last key
    that a pattern takes, for example.
    """

    def __init__(self, matcher: Any, pieces: TokenTexts) -> None:
        self._matcher, self._pieces = matcher, pieces
        self._place: JSONEnd | None = JSONEnd()

    def deep_copy(self) -> UniqueKeys:
        other = copy(self)
        other._matcher = self._matcher.deep_copy()
        return other

    def is_error(self) -> bool:
        return self._place is None or bool(self._matcher.is_error())

    def is_accepting(self) -> bool:
        return self._place is not None and bool(self._matcher.is_accepting())

    def consume_token(self, id: int) -> bool:
        return self.consume_tokens([id])

    def consume_tokens(self, ids: Sequence[int]) -> bool:
        takes = self._matcher.consume_tokens(ids)
        text = b"".join(self._pieces[id] for id in ids) if takes else b""
        self._place = self._place and self._place.advance(text)
        return not self.is_error()

    def try_consume_tokens(self, ids: Sequence[int]) -> int:
        n = self.validate_tokens(ids)
        self.consume_tokens(ids[:n])
        return n

    def validate_tokens(self, ids: Sequence[int]) -> int:
        places = [self._place]
        for id in ids[: self._matcher.validate_tokens(ids)]:
            places.append(places[-1] and places[-1].advance(self._pieces[id]))
        n, tried = len(places) - 1, dict[bytes, bool]()
        while n and not self._may_follow(ids[:n], places[n], tried):
            n -= 1
        return n

    def compute_bitmask(self) -> bytes:
        bits = bytearray(self._matcher.compute_bitmask())
        place, tried = self._place, dict[bytes, bool]()
        for id in self._pieces.which_matter(place) if place else ():
            if bits[id >> 3] >> (id & 7) & 1:
                after = place and place.advance(self._pieces[id])
                if not self._may_follow([id], after, tried):
                    bits[id >> 3] ^= 1 << (id & 7)
        return bytes(bits)

    def _may_follow(
        self, ids: Sequence[int], place: JSONEnd | None, tried: dict[bytes, bool]
    ) -> bool:
        """Return True unless tokens, which lead to a place, make a repeated key inevitable."""
        if place is None or not place.rests():
            return place is not None
        text = b"".join(self._pieces[id] for id in ids)
        if text not in tried:
            now = self._matcher.deep_copy()
            now.consume_tokens(ids)
            more = (([*ids, id], place.advance(self._pieces[id])) for id in self._next(now, place))
            tried[text] = any(self._may_follow(*one, tried) for one in more)
        return tried[text]

    def _next(self, matcher: Any, place: JSONEnd) -> Iterable[int]:
        """Return the tokens of a mask; before a key, only tokens with its quote, if any."""
        bits = np.frombuffer(matcher.compute_bitmask(), np.uint8)
        ids = map(int, np.flatnonzero(np.unpackbits(bits, bitorder="little")))
        if place.part == "key":
            return ids
        found = [*ids]  # white space is the other tokens
        return [id for id in found if b'"' in self._pieces[id]] or found
