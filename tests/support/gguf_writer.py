"""Files for tests, also broken ones (`fuzz.gguf_bytes` has what they are made of), which `refusal`
opens.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from dev.torture.fuzz.gguf_bytes import (
    KINDS,
    SCALARS,
    Tensor,
    array,
    encode,
    gguf,
    kv,
    string,
    u32,
    u64,
)
from ggml_py.errors import GGUFError
from llama_py.gguf.file import GGUFFile

__all__ = [
    "KINDS",
    "SCALARS",
    "Tensor",
    "array",
    "encode",
    "gguf",
    "kv",
    "refusal",
    "string",
    "u32",
    "u64",
    "write",
]


def write(folder: Path, content: bytes, name: str = "m.gguf") -> Path:
    path = folder / name
    path.write_bytes(content)
    return path


def refusal(path: Path) -> str:
    """Why GGUFFile.open refuses the file, after checking that it says so in one line: path: why."""
    with pytest.raises(GGUFError) as caught:
        GGUFFile.open(path)
    message = str(caught.value)
    assert message.startswith(f"{path}: ")
    assert "\n" not in message
    assert "; " in message  # what is wrong; what to do
    return message.removeprefix(f"{path}: ")
