"""Warnings that are logged once."""

from __future__ import annotations

import logging
from functools import lru_cache

log = logging.getLogger("llama_py")


@lru_cache(256)
def warn_once(warning: str) -> None:
    """Log a warning that was not logged before."""
    log.warning("%s", warning)
