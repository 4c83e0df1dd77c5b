"""Normal form C like llama.cpp's, by Unicode 16, independent of the Python version.

Python 3.10 has Unicode 13. Properties of assigned characters never change, so a table of later
characters is sufficient. Characters that Unicode 16 does not assign are unchanged.
"""

from __future__ import annotations

import re
import unicodedata
from functools import cache, lru_cache
from itertools import groupby

import numpy as np
from numpy.typing import NDArray

from llama_py.support.stopping import iterate_checked
from llama_py.tokenizer.characters import PIECE, category

# Characters of Unicode 14 to 16: combining classes, and pairs of characters that compose.
_CLASSES = {
    7: "C3C",
    9: "1715 11070 113CE-113D0 11F41-11F42 1612F",
    218: "1DFA",
    220: "899-89B 8CF-8D2 1AC3-1AC4 1ACA 10EFD-10EFF 10F83 10F85 1E4EE 1E5EF",
    230: "897-898 89C-89F 8CA-8CE 1AC1-1AC2 1AC5-1AC9 1ACB-1ACE 10D69-10D6D 10F82 10F84 1E08F "
    "1E2AE 1E4EF 1E5EE",
    232: "1E4EC-1E4ED",
}
_PAIRS = """
105D2+307=105C9 105DA+307=105E4
11382+113C9=11383 11384+113BB=11385 1138B+113C2=1138E 11390+113C9=11391
113C2+113C2=113C5 113C2+113B8=113C7 113C2+113C9=113C8
1611E+1611E=16121 1611E+16129=16122 1611E+1611F=16123 16129+1611F=16124 1611E+16120=16125
16121+1611F=16126 16122+1611F=16127 16121+16120=16128
16D67+16D67=16D68 16D63+16D67=16D69 16D69+16D67=16D6A
"""

_JAMO = "".join(map(chr, [*range(0x1161, 0x1176), *range(0x11A8, 0x11C3)]))  # V and T of Hangul
_LAST = 0x30000  # characters from here on have no forms
_CHANGES, _JOINS = 1, 2  # the character alone changes; it can join an earlier character
_PART = re.compile(rb"(?s).?\x02+|\x01")
_SHORT = 32


def nfc(text: str) -> str:
    """Return a text in normal form C; a lone surrogate is unchanged."""
    if text.isascii():
        return text
    flags = b"".join(_flags(text[i : i + PIECE]) for i in range(0, len(text), PIECE))
    parts, end = [], 0
    for match in iterate_checked(_PART.finditer(flags)):
        first, last = match.span()
        part = text[first:last]
        parts += [text[end:first], _cached(part) if last - first < _SHORT else _normalize(part)]
        end = last
    return "".join([*parts, text[end:]])


def _flags(text: str) -> bytes:
    codes = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), "<u4")
    found: NDArray[np.uint8] = _table()[np.minimum(codes, _LAST)]
    return found.tobytes()


@cache
def _table() -> NDArray[np.uint8]:
    """Return the flags of all characters. A part of a text between joins is independent."""
    every = map(chr, range(_LAST))
    known = {c for c in every if unicodedata.combining(c) or unicodedata.decomposition(c)}
    known |= _later_classes().keys() | _later_pairs().keys()
    forms = {c: _decompose(c) for c in known}
    second = {c for form in forms.values() for c in form[1:]} | set(_JAMO)
    table = np.zeros(_LAST + 1, np.uint8)
    for c in known | second:
        first = forms.get(c, c)[0]
        if _class(first) or first in second:
            table[ord(c)] = _JOINS
        elif _normalize(c) != c:
            table[ord(c)] = _CHANGES
    return table


def _normalize(part: str) -> str:
    out: list[str] = []
    last, at = 0, -1  # class of the last character of `out`; position of its last starter
    for c in iterate_checked(_sort("".join(map(_decompose, part)))):
        here = _class(c)
        free = at >= 0 and (at == len(out) - 1 or last < here)
        if free and (composed := _compose(out[at], c)):
            out[at] = composed
            continue
        out.append(c)
        last = here
        if not here:
            at = len(out) - 1
    return "".join(out)


_cached = lru_cache(maxsize=1 << 14)(_normalize)


def _sort(text: str) -> list[str]:
    """Sort rows of combining characters by class."""
    rows = groupby(text, lambda c: _class(c) > 0)
    return [c for combining, row in rows for c in (sorted(row, key=_class) if combining else row)]


def _decompose(c: str) -> str:
    pair = _later_pairs().get(c)
    if pair:
        return _decompose(pair[0]) + pair[1]
    return unicodedata.normalize("NFD", c) if category(c) != "-" else c


def _compose(a: str, b: str) -> str | None:
    """Return the character that two characters compose, if any."""
    pair = a + b
    found = _later_composed().get(pair)
    if found or "-" in (category(a), category(b)):
        return found
    made = unicodedata.normalize("NFC", pair)
    return made if len(made) == 1 else None


def _class(c: str) -> int:
    found = _later_classes().get(c)
    return found or (unicodedata.combining(c) if category(c) != "-" else 0)


@cache
def _later_classes() -> dict[str, int]:
    found: dict[str, int] = {}
    for number, ranges in _CLASSES.items():
        for item in ranges.split():
            first, _, last = item.partition("-")
            found |= {chr(c): number for c in range(int(first, 16), int(last or first, 16) + 1)}
    return found


@cache
def _later_composed() -> dict[str, str]:
    rows = (re.split("[+=]", row) for row in _PAIRS.split())
    return {chr(int(a, 16)) + chr(int(b, 16)): chr(int(c, 16)) for a, b, c in rows}


@cache
def _later_pairs() -> dict[str, str]:
    return {composed: pair for pair, composed in _later_composed().items()}
