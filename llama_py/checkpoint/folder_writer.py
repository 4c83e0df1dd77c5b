"""Folders of checkpoints: safetensors in shards with an index, like save_pretrained's."""

from __future__ import annotations

import json
import math
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ggml_py.errors import ModelError
from llama_py.checkpoint.arrays import LazyArray
from llama_py.checkpoint.folder import INDEX
from llama_py.checkpoint.shards import SplitLimits
from llama_py.gguf.file import TensorInfo
from llama_py.support.whole_file import replace_file

Progress = Callable[[int, int, str], None]
PART = ".part"  # ends the name of a folder that is being written
WEIGHTS = "model.safetensors"


@dataclass(frozen=True, slots=True, eq=False)
class FolderTensor:
    """A tensor of a checkpoint.

    array    its elements in the stored type
    sources  tensors to release from memory after writing
    """

    name: str
    array: LazyArray = field(repr=False)
    sources: tuple[TensorInfo, ...] = field(default=(), repr=False)

    @property
    def nbytes(self) -> int:
        return math.prod(self.array.shape) * self.array.dtype.itemsize

    def pieces(self) -> Iterator[memoryview]:
        """Compute the bytes in order."""
        for part in self.array.read_parts():
            yield np.ascontiguousarray(part).reshape(-1).view(np.uint8).data
        for source in self.sources:
            source.let_go()


def safetensors_pieces(tensors: Sequence[FolderTensor]) -> Iterator[bytes | memoryview]:
    """Yield a safetensors file in pieces; wider types come first, so all are aligned."""
    ordered = sorted(tensors, key=lambda t: -t.array.dtype.itemsize)
    header, at = dict[str, Any](__metadata__={"format": "pt"}), 0
    for t in ordered:
        header[t.name] = {
            "dtype": t.array.stored,
            "shape": [*t.array.shape],
            "data_offsets": [at, at + t.nbytes],
        }
        at += t.nbytes
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    yield len(text).to_bytes(8, "little") + text
    for t in ordered:
        yield from t.pieces()


def write_checkpoint(
    folder: Path,
    files: Mapping[str, bytes],
    tensors: Sequence[FolderTensor],
    max_shard_size: int = 0,
    force: bool = False,
    weights: str = WEIGHTS,
    progress: Progress | None = None,
) -> list[str]:
    """Write a folder, which appears when it is complete. -> names of the files

    files           content of other files, by name, with subfolders
    max_shard_size  bytes of tensors in a file of weights; 0: no limit
    force           replace files of an existing folder
    weights         name of the file of weights, if there is only one

    Raises ModelError if the folder has files, unless `force`, and OSError if it cannot be written;
    then an existing folder is unchanged.
    """
    check_free_folder(folder, force)
    shards, index = _cut(tensors, max_shard_size, weights)
    total, done = sum(t.nbytes for t in tensors), 0
    with _stage_folder(folder) as stage:
        for name, part in shards.items():

            def report(part: Sequence[FolderTensor] = part, name: str = name) -> Iterator[Any]:
                nonlocal done
                for piece in safetensors_pieces(part):
                    yield piece
                    done = min(done + len(piece), total)
                    if progress is not None:
                        progress(done, total, name)

            replace_file(stage / name, report())
        for name, content in {**index, **files}.items():
            (stage / name).parent.mkdir(parents=True, exist_ok=True)
            replace_file(stage / name, [content])
    return [*shards, *index, *files]


def check_free_folder(folder: Path, force: bool) -> None:
    """Raise ModelError if a folder cannot be written without overwriting files, unless `force`."""
    if folder.exists() and not folder.is_dir():
        raise ModelError(f"{folder}: is a file; use the name of a new folder")
    if folder.is_dir() and any(folder.iterdir()) and not force:
        raise ModelError(f"{folder}: folder has files; use another name, or --force")


def _cut(
    tensors: Sequence[FolderTensor], max_size: int, weights: str
) -> tuple[dict[str, list[FolderTensor]], dict[str, bytes]]:
    """Return the tensors of each file, and the index of several files."""
    parts = SplitLimits(max_size=max_size).cut(tensors)
    if len(parts) == 1:
        return {weights: parts[0]}, {}
    stem = weights.removesuffix(".safetensors")
    shards = {
        f"{stem}-{i + 1:05d}-of-{len(parts):05d}.safetensors": part for i, part in enumerate(parts)
    }
    found = {
        "metadata": {
            "total_parameters": sum(math.prod(t.array.shape) for t in tensors),
            "total_size": sum(t.nbytes for t in tensors),
        },
        "weight_map": {t.name: name for name, part in shards.items() for t in part},
    }
    return shards, {INDEX: json.dumps(found, indent=2).encode()}


@contextmanager
def _stage_folder(folder: Path) -> Iterator[Path]:
    """Yield a new folder next to another one; its files move to the latter at the end."""
    folder = folder.resolve()
    stage = folder.with_name(f".{folder.name}.{os.urandom(4).hex()}{PART}")
    stage.mkdir(parents=True)
    try:
        yield stage
        if folder.is_dir() and not any(folder.iterdir()):
            folder.rmdir()
        if not folder.exists():
            stage.rename(folder)
            return
        new = [path for path in stage.rglob("*") if path.is_file()]
        for path in new:
            target = folder / path.relative_to(stage)
            target.parent.mkdir(parents=True, exist_ok=True)
            path.replace(target)
        names = {path.name for path in new}
        for old in (*folder.glob("model*.safetensors"), folder / INDEX):
            if old.name not in names:
                old.unlink(missing_ok=True)
    finally:
        shutil.rmtree(stage, ignore_errors=True)
