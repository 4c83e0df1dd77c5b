"""What a machine allows: the one limit of waits, which says that something hangs, and networks."""

from __future__ import annotations

import os
import socket

SECONDS = int(os.environ.get("LLAMA_PY_TEST_SECONDS", "900"))


def has_ipv6() -> bool:
    """Return True if this machine can listen on IPv6 addresses."""
    if not socket.has_ipv6:
        return False
    try:
        with socket.socket(socket.AF_INET6) as one:
            one.bind(("::1", 0))
    except OSError:
        return False
    return True
