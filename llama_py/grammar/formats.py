"""Formats and patterns that llguidance interprets differently from JSON schema.

Its `format` accepts February 29 of every year, the year 0, and second 61 of any minute. Its
`pattern` is a Rust regular expression, but JSON schema uses ECMA-262.
"""

from __future__ import annotations

import re
from typing import Any

from llama_py.grammar.places import schemas

_YEAR = r"([0-9]{3}[1-9]|[0-9]{2}[1-9][0-9]|[0-9][1-9][0-9]{2}|[1-9][0-9]{3})"
_FOURTH = "(0[48]|[2468][048]|[13579][26])"
_LEAP = f"([0-9]{{2}}{_FOURTH}|{_FOURTH}00)"
_DATE = f"({_YEAR}-(0[13-9]|1[0-2])-[0-9]{{2}}|{_YEAR}-02-([01][0-9]|2[0-8])|{_LEAP}-02-29)"
_TIME = "[0-9]{2}:[0-9]{2}:[0-5]"
_PATTERNS = {"date": f"^{_DATE}$", "time": f"^{_TIME}", "date-time": f"^{_DATE}.{_TIME}"}
# Escapes that Rust shares, and parts with another meaning: `.` is special outside a class only.
_PIECE = re.compile(r"\\(?P<escape>.)|(?P<open>\[)|(?P<close>\])|(?P<any>\.)", re.S)
_SPACE = r"[\s--\x85]\x{FEFF}"  # ECMA-262: WhiteSpace and LineTerminator
_RUST = {
    r"\d": "[0-9]",
    r"\D": "[^0-9]",
    r"\w": "[0-9A-Za-z_]",
    r"\W": "[^0-9A-Za-z_]",
    r"\s": f"[{_SPACE}]",
    r"\S": f"[^{_SPACE}]",
    ".": r"[^\n\r\x{2028}\x{2029}]",
}


def in_rust(pattern: str) -> str:
    """Return a pattern of ECMA-262 as a Rust regular expression that takes the same strings."""
    in_class = False

    def put(match: re.Match[str]) -> str:
        nonlocal in_class
        if in_class and match[0] in (".", "["):  # literal inside a class
            return "\\" + match[0]
        in_class = bool(match["open"]) or (in_class and not match["close"])
        return _RUST.get(match[0], match[0])

    return _PIECE.sub(put, pattern)


def exact(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the schema with patterns in Rust's syntax, and one for each date or time format."""
    for part in list(schemas(schema)):
        pattern = _PATTERNS.get(str(part.get("format")))
        if isinstance(part.get("pattern"), str):
            part["pattern"] = in_rust(part["pattern"])
        elif pattern and "pattern" not in part:
            part["pattern"] = pattern
        known = part.get("patternProperties")
        if isinstance(known, dict):
            part["patternProperties"] = {in_rust(name): one for name, one in known.items()}
    return schema
