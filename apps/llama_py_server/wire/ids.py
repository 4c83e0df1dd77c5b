"""Ids of responses, messages and calls (server-common.cpp:random_string)."""

from __future__ import annotations

import secrets
import string

_LETTERS = string.digits + string.ascii_uppercase + string.ascii_lowercase


def new_id(prefix: str = "") -> str:
    """Return a prefix and 32 random letters."""
    return prefix + "".join(secrets.choice(_LETTERS) for _ in range(32))
