"""Sharded models `name-00001-of-00003.gguf`: which files belong together, in order.

The keys are llama-gguf-split's: `split.no` (from 0), `split.count`, `split.tensors.count` (of all
parts). The first part carries the model's metadata. Source: llama-model-loader.cpp, and for the
names llama.cpp:llama_split_path.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from glob import escape
from pathlib import Path

from ggml_py.errors import GGUFError
from llama_py.gguf.metadata import describe

_NAME = re.compile(r"(.*-)\d{5}(-of-\d{5}\.gguf)")
_MAX_PARTS = 0xFFFF  # llama.cpp reads split.count as a u16


@dataclass(frozen=True, slots=True)
class PartNumber:
    """One part's place: part `no` (from 0) of `count`, with `n_tensors` in all the parts."""

    no: int
    count: int
    n_tensors: int


def file_bytes(path: Path) -> int:
    """Return the bytes of a file, with all present parts of a sharded model; 0 without the file.
    Only names and sizes are read."""
    found = _NAME.fullmatch(path.name)
    if found is None:
        return path.stat().st_size if path.is_file() else 0
    parts = path.parent.glob(f"{escape(found[1])}?????{escape(found[2])}")
    return sum(part.stat().st_size for part in parts if _NAME.fullmatch(part.name))


def read_split(path: Path, metadata: Mapping[str, object]) -> PartNumber | None:
    """Return the shard's number from its `split.*` keys; None for a single file."""
    if "split.count" not in metadata:
        return None
    count = _integer(path, metadata, "split.count", _MAX_PARTS)
    if count <= 1:
        return None
    no = _integer(path, metadata, "split.no", count - 1)
    return PartNumber(no, count, _integer(path, metadata, "split.tensors.count", 2**31 - 1))


def part_paths(path: Path, split: PartNumber) -> list[Path]:
    """Return the paths of all shards, given the path of any shard.

    Raises GGUFError when the file's name does not fit its `split.*` keys, or parts are missing.
    """
    suffix = _suffix(split.no, split.count)
    if not path.name.endswith(suffix):
        raise GGUFError(
            f"{path}: part {split.no + 1} of {split.count} must have a name that ends in "
            f"'{suffix}', so that the other parts can be found; restore the parts' original names"
        )
    prefix = path.name.removesuffix(suffix)
    paths = [path.with_name(prefix + _suffix(no, split.count)) for no in range(split.count)]
    missing = [p.name for p in paths if not p.is_file()]
    if missing:
        raise GGUFError(
            f"{path}: {len(missing)} of {split.count} parts are missing in the same folder, the "
            f"first is {missing[0]}; download all parts into one folder"
        )
    return paths


def check_part(path: Path, found: PartNumber | None, expected: PartNumber) -> None:
    """Raise GGUFError if the shard at `path` differs from the one in its name."""
    if found is None or (found.no, found.count) != (expected.no, expected.count):
        is_part = f"part {found.no + 1} of {found.count}" if found else "a model in one file"
        raise GGUFError(
            f"{path}: expected part {expected.no + 1} of {expected.count}, but its split.* keys "
            f"specify {is_part}; download this part again"
        )


def part_name(prefix: str, no: int, count: int) -> str:
    """Return the name of shard `no`, from 0 (llama_split_path)."""
    return prefix + _suffix(no, count)


def _suffix(no: int, count: int) -> str:
    return f"-{no + 1:05d}-of-{count:05d}.gguf"


def _integer(path: Path, metadata: Mapping[str, object], key: str, largest: int) -> int:
    value = metadata.get(key)
    if type(value) is not int or not 0 <= value <= largest:
        shown = "missing" if value is None else describe(value)
        raise GGUFError(
            f"{path}: {key} must be an integer from 0 to {largest}, got {shown}; split the model "
            "again with llama-gguf-split"
        )
    return value
