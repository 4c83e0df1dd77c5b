"""Settings from environment variables."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable

log = logging.getLogger("llama_py")


def number(variable: str, default: int, unit: str, parse: Callable[[str], int] = int) -> int:
    """Return a variable's number; the default if it is unset or, with a warning, invalid."""
    given = os.environ.get(variable, "").strip()
    try:
        return parse(given) if given else default
    except (ValueError, OverflowError):
        log.warning("%s must be a number of %s, got %r; the default is used", variable, unit, given)
        return default
