"""Addresses that the server listens on: of --host, and with --ollama Ollama's."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from ggml_py.errors import ModelError

if TYPE_CHECKING:
    from llama_py_server.params import ListenParams

HOST, PORT = "127.0.0.1", 11434  # Ollama's
_PORTS = {"http": 80, "https": 443}


def list_addresses(listen: ListenParams) -> list[tuple[str, int]]:
    """Return hosts and ports. ModelError for an invalid OLLAMA_HOST."""
    found = [(host, listen.port) for host in listen.host]
    own = ollama_address() if listen.ollama else None
    return found if own is None or own in found else [*found, own]


def ollama_address() -> tuple[str, int]:
    """Return the host and port of OLLAMA_HOST, by default 127.0.0.1 and 11434. ModelError if it is
    invalid."""
    given = os.environ.get("OLLAMA_HOST", "").strip().strip("\"'")
    scheme, _, rest = given.rpartition("://")
    try:
        if rest.count(":") > 1 and not rest.startswith("["):  # an IPv6 address without a port
            rest = f"[{rest}]"
        parts = urlsplit(f"//{rest}")
        port = _PORTS.get(scheme.lower(), PORT) if parts.port is None else parts.port
    except ValueError as e:
        raise ModelError(f"OLLAMA_HOST={given}: expected HOST:PORT: {e}") from None
    return parts.hostname or HOST, port
