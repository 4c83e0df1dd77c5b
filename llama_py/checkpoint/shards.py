"""Shards of a converted model (gguf-py: GGUFWriter with split_max_tensors, split_max_size)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeVar

from ggml_py.errors import ModelError
from llama_py.gguf.parts import part_name
from llama_py.gguf.write import encode

MAX_SHARDS = 0xFFFF  # split.count is a u16


class HasBytes(Protocol):
    """A tensor with a known size."""

    @property
    def nbytes(self) -> int: ...


T = TypeVar("T", bound=HasBytes)


@dataclass(frozen=True)
class SplitLimits:
    """Limits of each shard; 0: no limit.

    max_tensors  number of tensors
    max_size     bytes of tensors, without padding; a larger tensor gets its own shard
    first_empty  the first shard has only metadata
    """

    max_tensors: int = 0
    max_size: int = 0
    first_empty: bool = False

    def cut(self, tensors: Sequence[T]) -> list[list[T]]:
        """Return the tensors of each shard."""
        parts: list[list[T]] = [[], []] if self.first_empty else [[]]
        size = 0
        for t in tensors:
            is_full = 0 < self.max_tensors <= len(parts[-1]) or 0 < self.max_size < size + t.nbytes
            if parts[-1] and is_full:
                parts.append([])
                size = 0
            parts[-1].append(t)
            size += t.nbytes
        return parts


def list_shards(
    path: Path, stored: Mapping[str, bytes], tensors: Sequence[T], limits: SplitLimits
) -> list[tuple[Path, dict[str, bytes], list[T]]]:
    """Return path, keys and tensors of each shard: PATH-00001-of-00003.gguf, ...; the path itself
    for a single one.

    Raises ModelError for too many shards.
    """
    parts = limits.cut(tensors)
    if len(parts) == 1:
        return [(path, dict(stored), parts[0])]
    if len(parts) > MAX_SHARDS:
        raise ModelError(
            f"{path}: {len(parts)} shards exceed the maximum of {MAX_SHARDS}; raise "
            "--split-max-size or --split-max-tensors"
        )
    prefix, found = str(path.with_name(path.stem)), []
    for i, part in enumerate(parts):
        keys = {
            **(stored if i == 0 else {}),
            "split.no": encode("u16", i),
            "split.count": encode("u16", len(parts)),
            "split.tensors.count": encode("i32", len(tensors)),
        }
        found.append((Path(part_name(prefix, i, len(parts))), keys, part))
    return found
