"""Editing of metadata values."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from ggml_py.errors import GGUFError
from llama_py.gguf.file import GGUFFile
from llama_py.gguf.metadata import KINDS, Metadata
from llama_py.gguf.write import ALIGNMENT, encode
from llama_py_tools.gguf.write import check_free, write

_CHANGE = re.compile(r"([^=:]+)(?::([^=]+))?=(.*)", re.S)
_TRUTH = {"true": True, "1": True, "false": False, "0": False}


def change(
    path: str, changes: Sequence[str], remove: Sequence[str], output: str, force: bool
) -> None:
    """Write a file with other metadata and the same tensors.

    Raises GGUFError for a missing key, and for a value that does not fit its type.
    """
    out = check_free(output, force)
    with GGUFFile.open(path) as file:
        if len(file.paths) > 1:
            raise GGUFError(
                f"{path}: file is split into {len(file.paths)} parts; merge them first: "
                "llama-py-gguf merge IN OUT"
            )
        stored = file.metadata.stored_values
        for key in remove:
            if stored.pop(key, None) is None:
                raise GGUFError(f"{path}: unknown key {key!r}; llama-py-gguf show lists the keys")
        for text in changes:
            key, kind, value = parse_assignment(text, file.metadata)
            stored[key] = encode(kind, value)
        write(out, stored, file.tensors.values())


def parse_assignment(text: str, metadata: Metadata) -> tuple[str, str, Any]:
    """Return key, type and value of KEY[:KIND]=VALUE."""
    found = _CHANGE.fullmatch(text)
    if found is None:
        raise GGUFError(
            f"{text!r} is not a change; use KEY=VALUE or KEY:TYPE=VALUE, such as "
            "general.name=text or x.y:u32=7"
        )
    key, kind, value = found[1], found[2] or "", found[3]
    if not kind:
        if key not in metadata:
            raise GGUFError(
                f"key {key!r} is new, so it needs a type: {key}:str=..., or one of "
                f"{', '.join(KINDS)}, arr[str], ..."
            )
        kind = metadata.kind(key)
    if key == ALIGNMENT:
        raise GGUFError(f"{ALIGNMENT} cannot be changed, because all tensors would move")
    return key, kind, parse_value(key, kind, value)


def parse_value(key: str, kind: str, text: str) -> Any:
    if kind == "str":
        return text
    if kind == "bool":
        if text.lower() not in _TRUTH:
            raise GGUFError(f"{key} must be true or false, got {text!r}")
        return _TRUTH[text.lower()]
    try:
        if kind.startswith("arr["):
            items = json.loads(text)
            if not isinstance(items, list):
                raise ValueError
            return items
        return float(text) if kind in ("f32", "f64") else int(text, 0)
    except ValueError:
        what = "a JSON array" if kind.startswith("arr[") else f"a number of type {kind}"
        raise GGUFError(f"{key} must be {what}, got {text!r}") from None
