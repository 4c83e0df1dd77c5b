"""Settings in environment variables."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable

log = logging.getLogger("llama_py")


def number(variable: str, default: int, unit: str, parse: Callable[[str], int] = int) -> int:
    """What a variable says; the default where it is not set or, with a warning, no number."""
    given = os.environ.get(variable, "").strip()
    try:
        return parse(given) if given else default
    except (ValueError, OverflowError):
        log.warning("%s is %r; it must be a number of %s", variable, given, unit)
        return default
