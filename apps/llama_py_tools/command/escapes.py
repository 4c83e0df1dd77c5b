"""Backslash escapes in prompts."""

from __future__ import annotations

ENCODING = ("utf-8", "surrogateescape")
_ESCAPES = {"n": "\n", "r": "\r", "t": "\t", "'": "'", '"': '"', "\\": "\\"}


def unescape(text: str) -> str:
    r"""Process `\n`, `\r`, `\t`, quotes, `\\`, `\x41` for any byte
    (common.cpp:string_process_escapes)."""
    out = bytearray()
    i = 0
    while i < len(text):
        following = text[i + 1 : i + 2]
        if text[i] != "\\" or not following:
            out += text[i].encode(*ENCODING)
            i += 1
        elif following in _ESCAPES:
            out += _ESCAPES[following].encode()
            i += 2
        elif following == "x" and _is_hex(text[i + 2 : i + 4]):
            out.append(int(text[i + 2 : i + 4], 16))
            i += 4
        else:
            out += text[i : i + 2].encode(*ENCODING)
            i += 2
    return out.decode(*ENCODING)


def _is_hex(text: str) -> bool:
    return len(text) == 2 and all(c in "0123456789abcdefABCDEF" for c in text)
