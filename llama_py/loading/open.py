"""Model files and folders, opened for loading."""

from __future__ import annotations

import os
from pathlib import Path

from llama_py.gguf.file import GGUFFile


def open_model(
    path: str | os.PathLike[str], use_mmap: bool = True, mmproj: bool = False
) -> GGUFFile:
    """Open a GGUF file, or the folder of a checkpoint: reading its tensors converts them.

    use_mmap  False: read the whole file now
    mmproj    of a folder: its encoders of images and sound

    Raises GGUFError for an invalid file, ModelError for an invalid folder.
    """
    if Path(path).is_dir():
        from llama_py.checkpoint.converter import ConvertOptions  # takes 0.1 s
        from llama_py.checkpoint.open import open_checkpoint

        return open_checkpoint(path, ConvertOptions(mmproj=mmproj))
    return GGUFFile.open(path, use_mmap)
