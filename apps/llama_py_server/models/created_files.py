"""Files of a request to create a model: uploaded blobs, checked and with the names that llama-py
needs."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ggml_py.errors import GGUFError, ModelError
from llama_py.gguf.file import GGUFFile
from llama_py.loading.hub import is_model
from llama_py.loading.open import open_model
from llama_py_server.models.facts import read_facts
from llama_py_server.wire.body import Body, check_length
from llama_py_server.wire.errors import invalid, without_folders
from llama_py_tools.models import blobs

MAX_FILES = 256  # files of a model
CONFIG = "config.json"  # of a checkpoint
_NAME = re.compile(r"\w[\w.-]{0,199}", re.ASCII)
_SHARD = re.compile(r"-\d{5}-of-\d{5}\.gguf$")
_CONVERT = "convert other formats to GGUF first: llama-py-gguf convert FOLDER"


def read_digests(body: Body, field: str) -> dict[str, str]:
    """Return the digests in `files` or `adapters` by name. HTTPError if they are invalid, or if a
    blob is missing."""
    given = body.get(field) or {}
    if not isinstance(given, Mapping) or not all(isinstance(v, str) for v in given.values()):
        raise invalid(f"'{field}' must be an object of digests by file name")
    check_length(field, len(given), MAX_FILES)
    for name, digest in given.items():
        if name.startswith("/") or ".." in name.split("/") or "\\" in name or ":" in name:
            raise invalid(f"file path must be relative: {name[:100]!r}")
        try:
            path = blobs.blob_path(digest)
        except ModelError as e:
            raise invalid(f"{name[:100]}: {e}") from None
        if not path.is_file():
            how = f"upload it first: POST /api/blobs/{digest}"
            raise invalid(f"blob not found for {name[:100]} (digest {digest}); {how}")
    return {str(name): digest.replace("-", ":", 1) for name, digest in given.items()}


def read_files(body: Body) -> dict[str, str]:
    """Return the files of a model by new names: `model.gguf` or all its shards, and its vision
    encoder `mmproj.gguf`; or the files of a checkpoint's folder. HTTPError for other files."""
    digests, found = read_digests(body, "files"), dict[str, str]()
    if any(name.endswith(".safetensors") for name in digests):
        return _read_checkpoint(digests)
    for given, digest in digests.items():
        shard = _SHARD.search(given)
        kind = "model" if shard else _file_kind(given, digest)
        if kind == "adapter":
            raise invalid(f"{given[:100]} is a LoRA adapter; send it in 'adapters'")
        name = f"{kind}{shard[0] if shard else '.gguf'}"
        if name in found:
            raise invalid(f"'files' has two files for {name}; send one model with all its shards")
        found[name] = digest
    models = [name for name in found if is_model(name)]
    if len(models) != 1:
        raise invalid("'files' must have one model in GGUF format, or all its shards")
    try:
        with GGUFFile.open(blobs.link_files(found) / models[0]):
            return found
    except GGUFError as e:
        raise invalid(without_folders(str(e))) from None


def _read_checkpoint(digests: Mapping[str, str]) -> dict[str, str]:
    """Return the files of a checkpoint by their names without folders."""
    found = {name.rpartition("/")[2]: digest for name, digest in digests.items()}
    for name in found:
        if not _NAME.fullmatch(name):
            raise invalid(f"file name {name[:100]!r} must have letters, digits, '.', '-', '_' only")
    if len(found) < len(digests) or CONFIG not in found:
        raise invalid(f"'files' with safetensors must be one folder with {CONFIG}")
    try:
        with open_model(blobs.link_files(found)):
            return found
    except ModelError as e:
        raise invalid(without_folders(str(e))) from None


def read_adapters(body: Body, path: str) -> list[str]:
    """Return the digests of a request's adapters. path: the model's file

    HTTPError for a file that is no adapter for this architecture.
    """
    found = []
    for name, digest in read_digests(body, "adapters").items():
        if _file_kind(name, digest) != "adapter":
            raise invalid(f"{name[:100]} is not a LoRA adapter; send a model in 'files'")
        facts = read_facts(path)
        with GGUFFile.open(blobs.blob_path(digest)) as file:
            if facts is not None and file.architecture != facts.arch:
                its = f"an adapter for {file.architecture}, but the model is {facts.arch}"
                raise invalid(f"{name[:100]} is {its}")
        found.append(digest)
    return found


def _file_kind(name: str, digest: str) -> str:
    """Return model, mmproj or adapter; HTTPError for a file that is not GGUF."""
    try:
        with GGUFFile.open(blobs.blob_path(digest)) as file:
            if file.metadata.get("general.type") == "adapter":
                return "adapter"
            return "mmproj" if file.architecture == "clip" else "model"
    except GGUFError as e:
        raise invalid(f"{name[:100]}: {without_folders(str(e))}; {_CONVERT}") from None


def find_model(recipe: Mapping[str, Any]) -> Path | None:
    """Return the file or folder of a created model with files; None if it is missing."""
    at = blobs.files_folder(recipe["files"])
    if CONFIG in recipe["files"]:
        return at if (at / CONFIG).is_file() else None
    names = [name for name in recipe["files"] if is_model(name)]
    return at / names[0] if names and (at / names[0]).is_file() else None
