"""Files of Hugging Face repositories: the choice of a model's file, its shards, and downloads with
the Hub's library."""

from __future__ import annotations

import re
from collections.abc import Sequence
from fnmatch import fnmatch
from os import PathLike
from pathlib import Path
from typing import Any

from ggml_py.errors import ModelError

USUAL = ("Q4_K_M", "Q8_0")  # llama.cpp's choice without a requested type
SHARD = re.compile(r"-(\d{5})-of-(\d{5})\.gguf$")
CONFIG = "config.json"  # file that stands for a checkpoint, a folder that is converted
_REACH_S = 10  # seconds until a silent Hub counts as unreachable
_OTHERS = ("mmproj", "imatrix", "mtp-", "eagle3-", "dflash-", "dspark-")  # parts of other names


def download_matching(
    repo_id: str,
    filename: str | None = None,
    others: Sequence[str] = (),
    *,
    local_dir: str | PathLike[str] | None = None,
    cache_dir: str | PathLike[str] | None = None,
) -> str:
    """Return the path of a repository's model file (of its first shard), downloaded if needed.

    filename   name or pattern of the file; None: Q4_K_M, Q8_0, or the first file. Without GGUF
               files, the folder of a checkpoint in safetensors
    others     names or patterns of other files to download
    local_dir  folder for the files; None: the library's cache, in cache_dir or its usual folder

    Raises ModelError, a ValueError, if no file, or several files, match a name; and the library's
    errors.
    """
    hub = import_hub("from_pretrained")
    names = _list_files(hub, repo_id, cache_dir)
    name = choose_file(repo_id, names) if filename is None else _match(repo_id, names, filename)
    wanted = [name, *(_match(repo_id, names, other) for other in others)]
    where: dict[str, Any] = {"local_dir": local_dir, "cache_dir": cache_dir}
    path, *_ = [
        str(hub.hf_hub_download(repo_id, one, **where))
        for first in wanted
        for one in list_parts(first, names)
    ]
    return str(Path(path).parent) if name == CONFIG else path


def import_hub(user: str) -> Any:
    """Return the Hub's library. ModelError, with the user's name, if it is not installed."""
    try:
        import huggingface_hub
    except ImportError:
        from ggml_py.machine.extras import install_hint

        raise ModelError(f"{user} needs huggingface_hub: {install_hint('hub')}") from None
    return huggingface_hub


def list_files(hub: Any, repo_id: str, token: str | None = None) -> list[str]:
    """Return the names of a repository's files on the Hub. Raises the errors of its library."""
    # This request, unlike list_repo_files and tree requests, is not retried.
    found = hub.HfApi().model_info(repo_id, token=token, timeout=_REACH_S).siblings
    return sorted(one.rfilename for one in found or ())


def _list_files(hub: Any, repo_id: str, cache_dir: str | PathLike[str] | None) -> list[str]:
    """Return the names of a repository's files; of its cached files if the Hub cannot be
    reached."""
    try:
        return list_files(hub, repo_id)
    except Exception:  # many classes without a common base
        try:
            folder = hub.snapshot_download(repo_id, cache_dir=cache_dir, local_files_only=True)
        except Exception:
            folder = None
        if folder is None:
            raise
    return sorted(p.relative_to(folder).as_posix() for p in Path(folder).rglob("*") if p.is_file())


def choose_file(repo: str, names: Sequence[str], quant: str = "") -> str:
    """Return a repository's model file of a type; without a type, of a usual type, or the first
    file, or CONFIG for a checkpoint. ModelError, with the repository's name, if it is missing."""
    models = [name for name in names if is_model(name)]
    if not models and not quant and list_parts(CONFIG, names):
        return CONFIG
    for tag in (quant,) if quant else USUAL:
        for name in models:
            if re.search(re.escape(tag) + "[.-]", name, re.IGNORECASE):
                return name
    if quant or not models:
        wanted = f"no GGUF file of type {quant}" if quant else "no GGUF file"
        raise ModelError(f"{repo}: {wanted} found{join_names(models)}")
    return models[0]


def _match(repo: str, names: Sequence[str], pattern: str) -> str:
    """Return the only file, or the first of its shards, that matches a pattern, as a whole path or
    without its folder."""
    found = [n for n in names if fnmatch(n, pattern) or fnmatch(n.rpartition("/")[2], pattern)]
    heads = [name for name in found if _is_head(name)] or found
    if len(heads) == 1:
        return heads[0]
    if heads:
        raise ModelError(f"{repo}: several files match {pattern!r}: {', '.join(heads)}; name one")
    raise ModelError(f"{repo}: no file matches {pattern!r}{join_names(names)}")


def join_names(names: Sequence[str]) -> str:
    """Return the end of an error that lists the files of a repository."""
    if not names:
        return ""
    return f"; it has {', '.join(names[:20])}{', ...' if len(names) > 20 else ''}"


def is_model(name: str) -> bool:
    """Return True if a file is a model, or its first shard (common_download: find_best_model)."""
    return is_part(name) and _is_head(name)


def is_part(name: str) -> bool:
    """Return True if a file is a model, or a shard of one."""
    base = name.rpartition("/")[2]
    return name.endswith(".gguf") and not any(other in base for other in _OTHERS)


def _is_head(name: str) -> bool:
    shard = SHARD.search(name)
    return shard is None or int(shard[1]) == 1


def list_parts(name: str, names: Sequence[str]) -> list[str]:
    """Return all files of a model: its shards, or for CONFIG the files that a checkpoint's folder
    needs, CONFIG first. Empty if there is no checkpoint."""
    if name != CONFIG:
        return list_shards(name, names)
    top = [n for n in names if "/" not in n]
    weights = [n for n in top if fnmatch(n, "model*.safetensors")]
    if CONFIG not in top or not weights:
        return []
    texts = [n for n in top if n.endswith((".json", ".jinja", ".txt")) and n != CONFIG]
    more = [n for n in top if n in ("README.md", "tokenizer.model")]
    pooling = [n for n in names if fnmatch(n, "*_Pooling/config.json")]
    return [CONFIG, *texts, *more, *pooling, *weights]


def list_shards(name: str, names: Sequence[str]) -> list[str]:
    """Return all files of a model, the first shard before the others."""
    found = SHARD.search(name)
    if found is None:
        return [name]
    stem = name[: found.start()]
    return sorted(
        n
        for n in names
        if n.startswith(stem)
        and (p := SHARD.search(n))
        and p.start() == len(stem)
        and p[2] == found[2]
    )
