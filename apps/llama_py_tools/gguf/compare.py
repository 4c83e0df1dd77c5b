"""Comparison of two GGUF files."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from llama_py.gguf.file import GGUFFile, TensorInfo
from llama_py.gguf.metadata import printable
from llama_py.loading.open import open_model
from llama_py_tools.command.progress import Progress
from llama_py_tools.gguf.show import shape, value_text
from llama_py_tools.models import session

PART_KEYS = "split."  # positions of a value in a split file do not describe the model
CHUNK = 2**24


def compare(a: str, b: str, with_bytes: bool) -> int:
    """Write a line for each difference; return 1 if a difference exists, else 0."""
    with open_model(a) as first, open_model(b) as second:
        n = 0
        for line in (*keys(first, second), *tensors(first, second, with_bytes)):
            session.write(line + "\n")
            n += 1
        if not n:
            session.write(f"no difference: {len(first.tensors)} tensors\n")
    return int(n > 0)


def keys(a: GGUFFile, b: GGUFFile) -> Iterator[str]:
    mine, theirs = a.metadata.stored_values, b.metadata.stored_values
    for key in dict.fromkeys((*mine, *theirs)):
        if key.startswith(PART_KEYS) or mine.get(key) == theirs.get(key):
            continue
        sides = [
            f"{f.metadata.kind(key)} {value_text(f.metadata, key, False)}"
            if key in f.metadata
            else "-"
            for f in (a, b)
        ]
        yield f"{printable(key)}: {sides[0]} | {sides[1]}"


def tensors(a: GGUFFile, b: GGUFFile, with_bytes: bool) -> Iterator[str]:
    names = list(dict.fromkeys((*a.tensors, *b.tensors)))
    progress = Progress("comparing")
    try:
        for i, name in enumerate(names):
            mine, theirs = (
                f.tensors[name].as_stored() if name in f.tensors else None for f in (a, b)
            )
            line = difference(mine, theirs, with_bytes)
            if line:
                yield f"{printable(name)}: {line}"
            progress(i + 1, len(names), name)
    finally:
        progress.close()


def difference(a: TensorInfo | None, b: TensorInfo | None, with_bytes: bool) -> str:
    """Return the difference of two tensors; "" if they are equal."""
    if a is None or b is None or (a.type, a.ne) != (b.type, b.ne):
        return " | ".join("-" if t is None else f"{t.type.name} {shape(t)}" for t in (a, b))
    if not with_bytes:
        return ""
    n = sum(
        int(np.count_nonzero(a.data[i : i + CHUNK] != b.data[i : i + CHUNK]))
        for i in range(0, a.nbytes, CHUNK)
    )
    return f"{n} of {a.nbytes} bytes differ" if n else ""
