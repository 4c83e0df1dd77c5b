"""Model files that a rank can read for itself."""

from __future__ import annotations

import hashlib
import os
from functools import cache
from pathlib import Path

import numpy as np

from ggml_py.backend import Bytes, FilePart

MARGIN = 2**20  # bytes in the digest, from each end of a file
SAMPLES, SAMPLE = 4, 1024  # samples of an array, and bytes of each


class Files:
    """Files that were mapped, by name and size."""

    def __init__(self) -> None:
        self._maps: dict[tuple[Path, int], Bytes | None] = {}

    def read(self, part: FilePart, size: int, digest: str) -> Bytes | None:
        """Return bytes of a file; None if no file has this name, size and digest."""
        key = part.path, size
        if key not in self._maps:
            self._maps[key] = _map_file(*key)
        data = self._maps[key]
        return None if data is None or sample_digest(part) != digest else part.extract(data)


def _map_file(path: Path, size: int) -> Bytes | None:
    try:
        return np.memmap(path, np.uint8, "r") if path.stat().st_size == size else None
    except OSError:
        return None


def sample_digest(part: FilePart) -> str:
    """Return a SHA-256 of the file's first and last megabyte (metadata, names and offsets of
    tensors) and samples of the part's array. Files that differ in one tensor only, such as
    adapted models, have different hashes."""
    found = hashlib.sha256(_ends(part.path))
    n = int(np.prod(part.shape))
    with part.path.open("rb") as file:
        for i in range(SAMPLES):
            file.seek(part.offset + i * max(n - SAMPLE, 0) // (SAMPLES - 1))
            found.update(file.read(min(SAMPLE, n)))
    return found.hexdigest()


@cache
def _ends(path: Path) -> bytes:
    with path.open("rb") as file:
        found = hashlib.sha256(file.read(MARGIN))
        file.seek(-min(MARGIN, path.stat().st_size), os.SEEK_END)
        found.update(file.read(MARGIN))
    return found.digest()
