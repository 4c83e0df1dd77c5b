"""Dates and times that there are: llguidance's `format` takes the 30th of no February, but the 29th
of each, the year 0, and a 61st second of any minute."""

from __future__ import annotations

from typing import Any

from llama_py.grammar.closed import schemas

_YEAR = r"([0-9]{3}[1-9]|[0-9]{2}[1-9][0-9]|[0-9][1-9][0-9]{2}|[1-9][0-9]{3})"
_FOURTH = "(0[48]|[2468][048]|[13579][26])"
_LEAP = f"([0-9]{{2}}{_FOURTH}|{_FOURTH}00)"
_DATE = (
    f"({_YEAR}-(0[13-9]|1[0-2])-[0-9]{{2}}|{_YEAR}-02-([01][0-9]|2[0-8])|{_LEAP}-02-29)"
)
_TIME = "[0-9]{2}:[0-9]{2}:[0-5]"
_PATTERNS = {"date": f"^{_DATE}$", "time": f"^{_TIME}", "date-time": f"^{_DATE}.{_TIME}"}


def exact(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema with a `pattern` beside each format of a date or time."""
    for part in list(schemas(schema)):
        pattern = _PATTERNS.get(str(part.get("format")))
        if pattern and "pattern" not in part:
            part["pattern"] = pattern
    return schema
