"""Splitting of a file into shards, and merging (gguf-split.cpp)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from ggml_py.errors import GGUFError
from llama_py.gguf.file import GGUFFile, TensorInfo
from llama_py.gguf.parts import part_name
from llama_py.gguf.write import encode, n_bytes
from llama_py_tools.gguf.sizes import show_size
from llama_py_tools.gguf.write import check_free, write
from llama_py_tools.models import session

PADDING = 32  # GGUF_DEFAULT_ALIGNMENT, to which sizes are rounded
MAX_PARTS = 0xFFFF
KEYS = ("split.no", "split.count", "split.tensors.count")


def split(
    path: str,
    prefix: str,
    max_tensors: int,
    max_size: int,
    first_empty: bool,
    dry_run: bool,
    force: bool,
) -> None:
    """Write the shards of a file; GGUFError if the file is already split."""
    with GGUFFile.open(path) as file:
        if len(file.paths) > 1:
            raise GGUFError(
                f"{path}: file is already split into {len(file.paths)} parts; merge them first: "
                "llama-py-gguf merge IN OUT"
            )
        groups: list[list[TensorInfo]] = [[]] if first_empty else []
        groups += cut((t.as_stored() for t in file.tensors.values()), max_tensors, max_size)
        if len(groups) > MAX_PARTS:
            raise GGUFError(
                f"{path}: {len(groups)} shards exceed the maximum of {MAX_PARTS}; raise "
                "--split-max-size or --split-max-tensors"
            )
        files = [check_free(part_name(prefix, i, len(groups)), force) for i in range(len(groups))]
        if not dry_run:
            Path(prefix).parent.mkdir(parents=True, exist_ok=True)
        for i, (out, tensors) in enumerate(zip(files, groups, strict=True)):
            stored = file.metadata.stored_values if i == 0 else {}
            stored["split.no"] = encode("u16", i)
            stored["split.tensors.count"] = encode("i32", len(file.tensors))
            stored["split.count"] = encode("u16", len(groups))
            if dry_run:
                size = show_size(n_bytes(stored, tensors))
                session.write(f"{out}: {len(tensors)} tensors, {size}\n")
            else:
                write(out, stored, tensors)


def cut(
    tensors: Iterable[TensorInfo], max_tensors: int, max_size: int
) -> Iterator[list[TensorInfo]]:
    """Yield the tensors of each shard; a tensor above max_size gets its own shard."""
    part: list[TensorInfo] = []
    size = 0
    for t in tensors:
        n = -(-t.nbytes // PADDING) * PADDING
        full = size + n > max_size if max_size else len(part) == max_tensors
        if part and full:
            yield part
            part, size = [], 0
        part.append(t)
        size += n
    yield part


def merge(path: str, output: str, force: bool) -> None:
    """Write one file of all parts; GGUFError if there is only one."""
    out = check_free(output, force)
    with GGUFFile.open(path) as file:
        if "split.count" not in file.metadata:
            raise GGUFError(
                f"{path}: not a shard of a split model; use one, such as NAME-00001-of-00003.gguf"
            )
        stored = {key: raw for key, raw in file.metadata.stored_values.items() if key not in KEYS}
        write(out, stored, file.tensors.values())
