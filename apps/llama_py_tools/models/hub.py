"""Models of the Hugging Face Hub: `-hf user/model[:quant]`, stored in its library's cache."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from ggml_py.errors import ModelError
from llama_py.loading.hub import (
    CONFIG,
    SHARD,
    choose_file,
    import_hub,
    is_model,
    is_part,
    join_names,
    list_files,
    list_parts,
)
from llama_py_tools.command.logs import log

if TYPE_CHECKING:
    from llama_py_tools.command.params import FileParams

T = TypeVar("T")

PRESET = "preset.ini"  # file in the top folder of a repository
_UNREACHABLE = {"ConnectionError", "Timeout", "TransportError"}  # errors of requests and httpx
_TYPE = re.compile(
    r"[-.]((?:UD-)?(?:I?Q\d\w*|TQ\d\w*|BF16|F16|F32|MXFP4\w*))\.gguf$", re.IGNORECASE
)


def download_model(file: FileParams) -> str:
    """Return the path of the model of -hf (of its first shard, or the folder of a checkpoint),
    downloaded if needed. ModelError explains a failure in one line."""
    file, name, names = _find_wanted(file)
    first, *_ = [download_file(file, part) for part in list_parts(name, names)]
    return str(Path(first).parent) if name == CONFIG else first


def download_vision_encoder(file: FileParams) -> str:
    """Download the vision encoder next to a model; return its path, or "" without one."""
    file, name, names = _find_wanted(file)
    found = find_vision_file(name, names)
    return download_file(file, found) if found else ""


def download_preset(file: FileParams) -> str:
    """Return the path of a --models-preset file if -hf names a repository with one, else ""
    (common_download: get_hf_plan)."""
    if not file.hf_repo or ":" in file.hf_repo or file.hf_file:
        return ""
    file, names = _names(file)
    return download_file(file, PRESET) if PRESET in names else ""


def find_vision_file(name: str, names: Sequence[str]) -> str:
    """Return the vision encoder (mmproj) for a model of a repository: in its folder or above, of
    the nearest precision (common_download: find_best_sibling), or ""."""

    def bits(name: str) -> int:
        kind = _TYPE.search(SHARD.sub(".gguf", name))
        number = re.search(r"\d+", kind[1]) if kind else None
        return int(number[0]) if number else 0

    folder = name.rpartition("/")[0]
    found = [
        n
        for n in names
        if n.endswith(".gguf")
        and "mmproj" in n
        and f"{folder}/".startswith(f"{n.rpartition('/')[0]}/".lstrip("/"))
    ]
    return min(found, key=lambda n: (-n.count("/"), abs(bits(n) - bits(name))), default="")


def _find_wanted(file: FileParams) -> tuple[FileParams, str, Sequence[str]]:
    """Return the options for `download_file`, the model's file, and all files of its repository."""
    repo, _, quant = file.hf_repo.partition(":")
    if repo.count("/") != 1:
        raise ModelError(f"-hf {file.hf_repo}: expected USER/MODEL or USER/MODEL:QUANT")
    file, names = _names(file)
    if file.hf_file:
        return file, _find_named(repo, names, file.hf_file), names
    return file, choose_file(f"-hf {repo}", names, quant), names


def download_file(file: FileParams, name: str) -> str:
    """Return the path of one file of a repository, downloaded if needed; ModelError on failure."""
    hub, repo = _library(), file.hf_repo.partition(":")[0]
    token = file.hf_token or None
    return str(
        _ask_hub(
            repo,
            lambda: hub.hf_hub_download(repo, name, token=token, local_files_only=file.offline),
        )
    )


def to_fetch(file: FileParams) -> tuple[str, dict[str, int]]:
    """Return the name of a -hf model as in `cached_names`, and the bytes of its files: all shards,
    and the vision encoder. ModelError on failure."""
    file, name, names = _find_wanted(file)
    repo, eyes = file.hf_repo.partition(":")[0], find_vision_file(name, names)
    tree = _ask_hub(
        repo,
        lambda: (
            _library().HfApi().list_repo_tree(repo, recursive=True, token=file.hf_token or None)
        ),
    )
    sizes = {entry.path: entry.size for entry in tree if hasattr(entry, "size")}
    wanted = [*list_parts(name, names), *([eyes] if eyes else [])]
    return _full_name(repo, name), {path: sizes.get(path, 0) for path in wanted}


def bytes_there(repo: str) -> int:
    """Count bytes of a repository's files in the cache, including incomplete downloads."""
    from huggingface_hub.constants import HF_HUB_CACHE

    blobs = Path(HF_HUB_CACHE) / f"models--{repo.replace('/', '--')}" / "blobs"
    try:
        return sum(path.stat().st_size for path in blobs.iterdir())
    except OSError:  # the folder is missing, or a file was renamed in between
        return 0


def remove_model(name: str) -> bool:
    """Remove a model of `cached_names` from the cache; return False if it is not cached.

    Deletes only files of the model's repository: other repositories may have the same commit.
    The folder is deleted with its last model. Raises OSError if a file cannot be removed.
    """
    for repo in _repos(_library()):
        files = [(file, path) for revision in _revisions(repo) for file, path in _paths(revision)]
        models = [(file, _full_name(repo.repo_id, path)) for file, path in files if is_part(path)]
        gone = [file for file, full in models if full == name]
        if gone and len(gone) == len(models):
            shutil.rmtree(repo.repo_path)
        elif gone:
            away = {file.file_path for file in gone}
            kept = {file.blob_path for file, _ in files if file.file_path not in away}
            for path in (away | {file.blob_path for file in gone}) - kept:
                path.unlink(missing_ok=True)
        if gone:
            return True
    return False


def list_cached() -> str:
    """Return the content of the cache: a line for each model file, or its first shard."""
    hub = _library()
    lines = []
    for repo in sorted(_repos(hub), key=lambda repo: str(repo.repo_id)):
        for name, size in sorted(_files(repo).items()):
            if is_model(name):
                lines.append(f"{repo.repo_id} {name} ({size / 2**20:.0f} MiB)")
    head = f"number of models in cache: {len(lines)}\n"
    return head + "".join(f"{i:4d}. {line}\n" for i, line in enumerate(lines, 1))


def cached_files() -> list[Path]:
    """Return the models in the cache, sorted by name within a repository; [] if huggingface_hub is
    not installed."""
    if find_spec("huggingface_hub") is None:
        return []
    paths = {
        (name, repo.repo_id): Path(file.file_path)
        for repo in _repos(_library())
        for revision in reversed(_revisions(repo))
        for file, name in _paths(revision)
        if is_model(name)
    }
    return [paths[key] for key in sorted(paths)]


def cached_names() -> dict[str, Path]:
    """Return the models in the cache by repository and type, USER/MODEL:TYPE, like llama-server."""
    if find_spec("huggingface_hub") is None:
        return {}
    found: dict[str, Path] = {}
    for repo in _repos(_library()):
        for revision in _revisions(repo):
            for file, name in sorted(_paths(revision), key=lambda pair: pair[1]):
                if is_model(name):
                    found.setdefault(_full_name(repo.repo_id, name), Path(file.file_path))
    return found


def _full_name(repo: str, name: str) -> str:
    """Return the full name of a model, from any part of its file."""
    kind = _TYPE.search(SHARD.sub(".gguf", name))
    return f"{repo}:{kind[1].upper()}" if kind else repo


def _find_named(repo: str, names: Sequence[str], name: str) -> str:
    if name not in names:
        models = [name for name in names if name.endswith(".gguf")]
        raise ModelError(f"-hff {name}: {repo} does not have this file{join_names(models)}")
    return name


def _names(file: FileParams) -> tuple[FileParams, list[str]]:
    """List a repository's files; if offline or if the Hub is unreachable, its cached files.

    The returned options are offline if the list is from the cache. Later requests would also fail,
    after 20 seconds of the library's retries.
    """
    hub, repo, why = _library(), file.hf_repo.partition(":")[0], ""
    if not file.offline:
        try:
            return file, list_files(hub, repo, file.hf_token or None)
        except Exception as e:  # many classes without a common base
            if not _UNREACHABLE & {kind.__name__ for kind in type(e).__mro__}:
                raise ModelError(f"-hf {repo}: {_line(e)}") from None
            why = f"the Hugging Face Hub cannot be reached ({_line(e)})"
    cached = [name for found in _repos(hub) if found.repo_id == repo for name in _files(found)]
    if not cached:
        remedy = "check the network" if why else "run without --offline to download it"
        raise ModelError(
            f"-hf {repo}: {f'{why}, and ' if why else ''}it is not in the cache; {remedy}"
        )
    if why:
        log.warning("-hf %s: %s; using the files in the cache", repo, why)
    return replace(file, offline=True), sorted(cached)


def _repos(hub: Any) -> list[Any]:
    try:
        return [repo for repo in hub.scan_cache_dir().repos if repo.repo_type == "model"]
    except hub.CacheNotFound:
        return []


def _revisions(repo: Any) -> list[Any]:
    """Return a repository's revisions: its main branch, then the newest."""
    return sorted(repo.revisions, key=lambda r: ("main" not in r.refs, -r.last_modified))


def _paths(revision: Any) -> list[tuple[Any, str]]:
    """Return the files of a revision, with their paths in the repository."""
    at = revision.snapshot_path
    return [(file, file.file_path.relative_to(at).as_posix()) for file in revision.files]


def _files(repo: Any) -> dict[str, int]:
    """Return sizes by path, of all revisions."""
    return {
        path: file.size_on_disk
        for revision in reversed(_revisions(repo))
        for file, path in _paths(revision)
    }


def _ask_hub(repo: str, ask: Callable[[], T]) -> T:
    try:
        return ask()
    except Exception as e:  # many classes without a common base
        raise ModelError(f"-hf {repo}: {_line(e)}") from None


def _line(e: Exception) -> str:
    return " ".join(str(e).split()) or type(e).__name__


def _library() -> Any:
    return import_hub("-hf")
