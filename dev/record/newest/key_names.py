"""Names of llama.cpp's keys, and the keys that it reads of each tiny model."""

from __future__ import annotations

import json
import lzma
from collections.abc import Iterator
from pathlib import Path
from textwrap import fill, indent
from typing import Any

import gguf
import numpy as np

from dev import tiny_models as tiny
from dev.record.newest.loader import WRONG_ARRAY, WRONG_TYPE, Loader, find_names
from dev.tiny_models._file import gguf as gguf_file
from dev.tiny_models._invent import tensors

ROOT = Path(__file__).parents[3]
MODULE = ROOT / "llama_py" / "hparams" / "known_keys.py"
READ = ROOT / "tests" / "data" / "keys_read.json.xz"
DOC = '''"""Names of llama.cpp's hyperparameters, without the architecture's prefix.

The names of build b11739 and of the Python package gguf: `python -m dev.record.newest names`.
"""
'''


def write_names(library: Path) -> None:
    """Write `llama_py/hparams/known_keys.py`."""
    found = {name[3:] for name in find_names(library)[0]} | set(_constants(gguf.Keys))
    names = sorted(name for name in found if name[0].isalpha())
    text = fill(", ".join(f'"{name}"' for name in names), 92, break_on_hyphens=False) + ","
    head = "from __future__ import annotations\n\nKNOWN_KEYS = frozenset((\n"
    MODULE.write_text(f"{DOC}\n{head}{indent(text, '    ')}\n))  # fmt: skip\n", encoding="utf-8")


def _constants(kind: type) -> Iterator[str]:
    for value in vars(kind).values():
        if isinstance(value, type):
            yield from _constants(value)
        elif isinstance(value, str) and value.startswith("{arch}."):
            yield value.removeprefix("{arch}.")


def record_read(arch: str, library: Path, folder: Path) -> None:
    """Record the keys that llama.cpp reads of an architecture's tiny models: `tests/data`."""
    found = recorded_keys() if READ.exists() else {}
    patterns = find_names(library)[0]
    for (name, variant), one in tiny.every().items():
        if name == arch:
            keys = sorted(_keys_read(arch, one, patterns, folder))
            found[f"{arch}-{variant}"] = [key.removeprefix(f"{arch}.") for key in keys]
    READ.write_bytes(lzma.compress(json.dumps(dict(sorted(found.items()))).encode()))


def recorded_keys() -> dict[str, list[str]]:
    """Return the keys that llama.cpp reads, by "ARCH-VARIANT", without keys that the file has."""
    found: dict[str, list[str]] = json.loads(lzma.decompress(READ.read_bytes()))
    return found


def _keys_read(arch: str, one: tiny.Tiny, patterns: list[str], folder: Path) -> Iterator[str]:
    """Yield keys that the file does not have. Each is added with a type that no key has, first as
    a number, then as an array: llama.cpp refuses the keys that it reads."""
    metadata, arrays = tiny.metadata(arch, one), tensors(arch, one)
    loader, wrong = Loader(arch, {}, folder), np.float64(0.5)
    names = {name.replace("%s", arch) for name in patterns} - metadata.keys()
    forms: list[tuple[Any, Any]] = [(wrong, WRONG_TYPE), ([wrong, wrong], WRONG_ARRAY)]
    for value, error in forms:
        more = dict.fromkeys(sorted(names), value)
        loader.path.write_bytes(gguf_file({**more, **metadata}, arrays))
        read = {key for key, _ in loader.errors(error)}
        names -= read
        yield from read
