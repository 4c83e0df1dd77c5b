"""Digests without hashlib, which loads OpenSSL: 3 ms of a start and 3 MiB of a process."""

from __future__ import annotations

try:
    from _blake2 import blake2b
except ImportError:  # a Python with a different hashlib
    from hashlib import blake2b

__all__ = ["blake2b", "hex_digest"]


def hex_digest(content: bytes) -> str:
    """Return 64 hex digits (RFC 7693: BLAKE2b of 32 bytes)."""
    return blake2b(content, digest_size=32).hexdigest()
