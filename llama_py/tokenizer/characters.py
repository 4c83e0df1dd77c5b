"""Character classes like llama.cpp's, by Unicode 15.1, independent of the Python version.

`category` is one letter (`L`, `M`, `N`, `P`, `S`, `Z`, `C`, or `-` for unassigned code points).
Regular expressions match `kinds`, one byte per character, like unicode.cpp:unicode_regex_split:
ASCII is unchanged, any other white space is a vertical tab, and each category has a byte.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

FILE = Path(__file__).parents[1] / "data" / "unicode.txt"

HAN = "一-鿿㐀-䶿\U00020000-\U0002a6df\U0002a700-\U0002ebef\uf900-\ufaff\U0002f800-\U0002fa1f"

# Bytes in `kinds`: others, categories, Han that are letters, and Han that are not.
_OTHER, _SPACE, _HAN_LETTER, _HAN_OTHER = 0xD0, 0x0B, 0xD6, 0xD7
_KIND_OF = {"N": 0xD1, "L": 0xD2, "P": 0xD3, "M": 0xD4, "S": 0xD5}

# Contents of a character class of kinds, between [ and ]. `U` and `W`: letters except lowercase
# and except uppercase ASCII letters, because llama.cpp distinguishes case in ASCII only.
CLASSES = {
    "N": r"0-9\xd1",
    "L": r"A-Za-z\xd2\xd6",
    "P": r"!-#%-*,-/:-;?-@\[-\]_{}\xd3",
    "M": r"\xd4",
    "S": r"$+<->^`|~\xd5",
    "U": r"A-Z\xd2\xd6",
    "W": r"a-z\xd2\xd6",
    "Han": r"\xd6\xd7",
}

PIECE = 1 << 18  # characters per call, between which other threads can run

_SPACES = re.compile("[^\\S\x1c-\x1f]")  # Python treats four control characters as spaces
_SURROGATE = re.compile("[\ud800-\udfff]")


@cache
def _space_as_ascii() -> dict[int, str]:
    return {ord(c): "\v" for c in map(chr, range(0x80, 0x3001)) if _SPACES.match(c)}


@cache
def _categories() -> NDArray[np.uint8]:
    table = np.full(0x110000, ord("-"), np.uint8)
    for line in FILE.read_text("utf-8").splitlines():
        if line.startswith("#"):
            continue
        letter, *ranges = line.split()
        for item in ranges:
            first, _, last = item.partition("-")
            table[int(first, 16) : int(last or first, 16) + 1] = ord(letter)
    return table


@cache
def _kinds() -> NDArray[np.uint8]:
    categories = _categories()
    table = np.full(len(categories), _OTHER, np.uint8)
    for letter, kind in _KIND_OF.items():
        table[categories == ord(letter)] = kind
    for part in re.findall("(.)-(.)", HAN):
        han = slice(ord(part[0]), ord(part[1]) + 1)
        letters = table[han] == _KIND_OF["L"]
        table[han] = np.where(letters, _HAN_LETTER, _HAN_OTHER)
    table[list(_space_as_ascii())] = _SPACE
    table[:0x80] = np.arange(0x80)
    return table


def kinds(text: str) -> bytes:
    """Return the kind of each character; lone surrogates have no category."""
    if text.isascii():
        return text.encode()
    return b"".join(_classify(text[i : i + PIECE]) for i in range(0, len(text), PIECE))


def _classify(text: str) -> bytes:
    codes = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), "<u4")
    found: NDArray[np.uint8] = _kinds()[codes]
    return found.tobytes()


def by_pieces(convert: Callable[[str], str], text: str) -> str:
    """Convert a text in pieces, between which other threads run; characters are independent."""
    return "".join(convert(text[i : i + PIECE]) for i in range(0, len(text), PIECE))


def category(character: str) -> str:
    return chr(_categories()[ord(character)])


def is_space(character: str) -> bool:
    return _SPACES.match(character) is not None


def lower(character: str) -> str:
    """Return a character's lower case, always one character."""
    return character.lower()[0] if category(character) != "-" else character


def ascii_spaces(text: str) -> str:
    """Replace white space that is not ASCII by vertical tabs."""
    return text if text.isascii() else by_pieces(_with_ascii_spaces, text)


def _with_ascii_spaces(text: str) -> str:
    return text.translate(_space_as_ascii())


def decode_utf8(text: str) -> str:
    """Replace bytes that were not UTF-8 by U+FFFD."""
    return text if text.isascii() else by_pieces(partial(_SURROGATE.sub, "\ufffd"), text)
