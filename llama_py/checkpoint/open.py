"""Folders of checkpoints as open GGUF files. Reading a tensor converts it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from llama_py.checkpoint.convert import plan
from llama_py.checkpoint.converter import Converter, ConvertOptions
from llama_py.checkpoint.output import NewTensor
from llama_py.gguf.file import GGUFFile
from llama_py.gguf.tensor_info import ComputedTensor


def open_checkpoint(
    path: str | os.PathLike[str], options: ConvertOptions | None = None
) -> GGUFFile:
    """Return a folder as an open GGUF file. Reading `data` of a tensor converts it.

    Raises ModelError if the folder is not a checkpoint of a known model.
    """
    return open_planned(path, *plan(path, options))


def open_planned(
    path: str | os.PathLike[str], chosen: Converter, tensors: Sequence[NewTensor]
) -> GGUFFile:
    """Return the result of `plan` as an open GGUF file."""
    computed = {t.name: ComputedTensor(t.name, t.type, t.dims, t.nbytes, t.data) for t in tensors}
    return GGUFFile.from_values(Path(path), chosen.out.stored, computed)
