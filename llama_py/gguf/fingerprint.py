"""Fingerprint of a model, which identifies it in saved states."""

from __future__ import annotations

import numpy as np

from ggml_py.machine.digest import blake2b
from llama_py.gguf.file import GGUFFile

SAMPLE = 64  # bytes of each tensor, which differ between two trainings


def fingerprint(file: GGUFFile) -> str:
    """Return 32 hex digits of a model's metadata, tensor types and shapes, and the first bytes of
    each tensor; this reads little more than the header."""
    found = blake2b(digest_size=16)
    for key, value in file.metadata.items():
        raw = value.tobytes() if isinstance(value, np.ndarray) else b""
        text = f"{key}={len(raw) if raw else repr(value)};"
        found.update(text.encode("utf-8", "surrogatepass") + raw)
    for info in file.tensors.values():
        found.update(f"{info.name} {info.type.name} {info.ne};".encode())
        found.update(info.as_stored().data[:SAMPLE].tobytes())
    return found.hexdigest()
