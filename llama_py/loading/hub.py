"""Download of model files from the Hugging Face Hub with its library."""

from __future__ import annotations

import re
from collections.abc import Sequence
from fnmatch import fnmatch
from os import PathLike
from pathlib import Path
from typing import Any

from ggml_py.errors import ModelError
from ggml_py.machine.extras import install_hint

REACH_S = 10  # seconds until a silent Hub counts as unreachable
USUAL = ("*q4_k_m*.gguf", "*q8_0*.gguf", "*.gguf")  # patterns of a model without a filename
_SHARD = re.compile(r"-(\d{5})-of-(\d{5})\.gguf$")
_PARTS = "mmproj", "imatrix"  # files next to a model


def download_matching(
    repo_id: str,
    filename: str | None = None,
    others: Sequence[str] = (),
    *,
    local_dir: str | PathLike[str] | None = None,
    cache_dir: str | PathLike[str] | None = None,
) -> str:
    """Return the path of a repository's model file (of its first shard), downloaded if needed.

    filename   name or pattern of the file; None: Q4_K_M, Q8_0, or the first file
    others     names or patterns of other files to download
    local_dir  folder for the files; None: the library's cache, in cache_dir or its usual folder

    Raises ModelError, a ValueError, if no file, or several files, match a name; and the library's
    errors.
    """
    names = _list_files(repo_id, cache_dir)
    if filename is None:
        models = [n for n in names if not any(part in n for part in _PARTS)]
        found = next((m for p in USUAL if (m := [n for n in models if fnmatch(n.lower(), p)])), [])
        name = _choose_file(repo_id, _heads(found)[:1], USUAL[-1], names)
    else:
        name = _choose_file(repo_id, _match(names, filename), filename, names)
    wanted = [_choose_file(repo_id, _match(names, other), other, names) for other in others]
    where: dict[str, Any] = {"local_dir": local_dir, "cache_dir": cache_dir}
    path, *_ = [
        str(_library().hf_hub_download(repo_id, one, **where))
        for first in (name, *wanted)
        for one in _shards(first, names)
    ]
    return path


def _library() -> Any:
    try:
        import huggingface_hub
    except ImportError:
        raise ModelError(f"from_pretrained needs huggingface_hub: {install_hint('hub')}") from None
    return huggingface_hub


def _list_files(repo_id: str, cache_dir: str | PathLike[str] | None) -> list[str]:
    """Return the names of a repository's files; of its cached files if the Hub cannot be
    reached."""
    hub = _library()
    try:
        # This request, unlike list_repo_files, is not retried.
        found = hub.HfApi().model_info(repo_id, timeout=REACH_S).siblings
        return sorted(one.rfilename for one in found or ())
    except Exception:  # many classes without a common base
        try:
            folder = hub.snapshot_download(repo_id, cache_dir=cache_dir, local_files_only=True)
        except Exception:
            folder = None
        if folder is None:
            raise
    return sorted(p.relative_to(folder).as_posix() for p in Path(folder).rglob("*") if p.is_file())


def _match(names: Sequence[str], pattern: str) -> list[str]:
    """Return the names that match a pattern, as a whole path or without its folder."""
    return [n for n in names if fnmatch(n, pattern) or fnmatch(n.rpartition("/")[2], pattern)]


def _heads(names: Sequence[str]) -> list[str]:
    """Return the names without the second and later shards of a file."""
    return [n for n in names if (part := _SHARD.search(n)) is None or int(part[1]) == 1]


def _choose_file(repo_id: str, found: Sequence[str], pattern: str, names: Sequence[str]) -> str:
    """Return the only file of a list, or the first of its shards."""
    heads = _heads(found) or found
    if len(heads) == 1:
        return heads[0]
    shown = ", ".join(heads or names)
    problem = "several files match" if heads else "no file matches"
    has = "" if heads else "; it has"
    raise ModelError(f"{repo_id}: {problem} {pattern!r}{has or ':'} {shown}")


def _shards(name: str, names: Sequence[str]) -> list[str]:
    """Return the names of all shards of a file."""
    part = _SHARD.search(name)
    if part is None:
        return [name]
    stem, end = name[: part.start()], f"-of-{part[2]}.gguf"
    return [n for n in names if n.startswith(stem) and n.endswith(end) and len(n) == len(name)]
