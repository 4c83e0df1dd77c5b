"""Files that clients uploaded for created models, by the digests of their contents.

The folder `blobs` next to `created.json` has the files `sha256-HEX`. For each created model with
files it has a folder `files-HEX` of links with the names that llama-py needs.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from ggml_py.errors import ModelError
from llama_py.support.whole_file import PART
from llama_py_tools.models.url import folder

Files = Mapping[str, str]
CHUNK = 1 << 20  # bytes of one read
UNUSED = 86400.0  # seconds after which an unused upload is removed
_DIGEST = re.compile(r"sha256[:-]([0-9a-f]{64})")


def blob_folder() -> Path:
    """Return the folder of all blobs."""
    return folder() / "blobs"


def blob_path(digest: str) -> Path:
    """Return the path of a blob, which may not exist. ModelError for an invalid digest."""
    found = _DIGEST.fullmatch(digest)
    if found is None:
        raise ModelError(f"invalid digest {digest[:80]!r}; use sha256: and 64 digits 0-9a-f")
    return blob_folder() / f"sha256-{found[1]}"


def has_blob(digest: str) -> bool:
    """Return True if the blob exists; it is not removed soon. ModelError for an invalid digest."""
    path = blob_path(digest)
    if not path.is_file():
        return False
    with suppress(OSError):
        os.utime(path)
    return True


class BlobWriter:
    """Writer of a blob, which gets its name only if it is complete and has the digest."""

    def __init__(self, digest: str) -> None:
        """Start a blob. ModelError for an invalid digest."""
        self.path, self._hash = blob_path(digest), hashlib.sha256()
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._part = self.path.with_name(f"{self.path.name}.{os.urandom(8).hex()}{PART}")
        self._file = self._part.open("xb")

    def write(self, data: bytes | bytearray) -> None:
        self._hash.update(data)
        self._file.write(data)

    def finish(self) -> None:
        """Name the blob. ModelError if its digest differs."""
        found = f"sha256-{self._hash.hexdigest()}"
        if found != self.path.name:
            expected, got = (name.replace("-", ":", 1) for name in (self.path.name, found))
            raise ModelError(f"digest mismatch, expected {expected!r}, got {got!r}")
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        self._part.replace(self.path)

    def close(self) -> None:
        """Remove an incomplete blob."""
        self._file.close()
        self._part.unlink(missing_ok=True)


def move_file(path: Path) -> str:
    """Make a blob of a file, and return its digest."""
    known = hashlib.sha256()
    with path.open("rb") as file:
        while data := file.read(CHUNK):
            known.update(data)
    digest = f"sha256:{known.hexdigest()}"
    path.replace(blob_path(digest))
    return digest


def link_files(files: Files) -> Path:
    """Link the blobs of a model by names in one folder, and return the folder.

    files   digests by file name
    Raises OSError if a blob is missing, or if the disk supports no links.
    """
    at = files_folder(files)
    at.mkdir(parents=True, exist_ok=True)
    for name, digest in files.items():
        path, blob = at / name, blob_path(digest)
        if not path.exists():
            path.unlink(missing_ok=True)
            try:
                os.link(blob, path)
            except OSError:
                blob.stat()
                path.symlink_to(blob)
    return at


def files_folder(files: Files) -> Path:
    """Return the folder of a model's links, which may not exist."""
    known = hashlib.sha256(repr(sorted(files.items())).encode()).hexdigest()
    return blob_folder() / f"files-{known[:32]}"


def remove_unused(recipes: Iterable[Mapping[str, Any]], removed: Mapping[str, Any]) -> None:
    """Remove files that no created model uses: of a removed model at once, others after a day."""
    used = {name for recipe in recipes for name in _list_names(recipe)}
    ours = _list_names(removed)
    for path in blob_folder().glob("*"):
        with suppress(OSError):  # in use, or another process was faster
            is_old = time.time() - path.stat().st_mtime > UNUSED
            if path.name in used or not (is_old or path.name in ours):
                continue
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink()


def _list_names(recipe: Mapping[str, Any]) -> set[str]:
    """Return the names in the folder that a created model uses."""
    files = recipe.get("files", {})
    found = {blob_path(digest).name for digest in (*files.values(), *recipe.get("adapters", ()))}
    return found | ({files_folder(files).name} if files else set())
