"""Folders of checkpoints as open GGUF files. Reading a tensor converts it."""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from llama_py.checkpoint.convert import plan
from llama_py.checkpoint.converter import ConvertOptions
from llama_py.checkpoint.floats import Bytes
from llama_py.checkpoint.output import NewTensor
from llama_py.gguf.file import GGUFFile, TensorInfo


def open_checkpoint(
    path: str | os.PathLike[str], options: ConvertOptions | None = None
) -> GGUFFile:
    """Return a folder as an open GGUF file. Reading `data` of a tensor converts it.

    Raises ModelError if the folder is not a checkpoint of a known model.
    """
    chosen, tensors = plan(path, options)
    computed = {t.name: ComputedTensor(t) for t in tensors}
    return GGUFFile.from_values(Path(path), chosen.out.stored, computed)


class ComputedTensor(TensorInfo):
    """A tensor of a folder. Reading `data` converts it; the bytes need memory while in use."""

    __slots__ = ("_last", "_source")
    _last: Callable[[], Bytes | None]
    _source: NewTensor

    def __init__(self, source: NewTensor) -> None:
        ne = (*source.dims, 1, 1, 1)[:4]
        for name, value in (
            ("name", source.name), ("type", source.type), ("ne", ne), ("offset", 0),
            ("nbytes", source.nbytes), ("mapped", None), ("path", None),
            ("_source", source), ("_last", lambda: None),
        ):  # fmt: skip
            object.__setattr__(self, name, value)

    def rename(self, name: str) -> TensorInfo:
        return ComputedTensor(replace(self._source, name=name))

    @property
    def data(self) -> Bytes:
        """Converted bytes, read-only, [nbytes]."""
        found = self._last()
        if found is None:
            found = self._source.data()
            found.flags.writeable = False
            object.__setattr__(self, "_last", weakref.ref(found))
        return found
