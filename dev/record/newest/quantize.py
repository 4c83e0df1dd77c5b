"""Types of tensors that the build's llama_model_quantize chooses, for tests/data/quantize."""

from __future__ import annotations

import ctypes
import json
import lzma
from pathlib import Path
from typing import Any

from dev.record.golden.quantize import (
    DATA,
    TYPES,
    packed,
    printed_types,
    recorded_types,
    tiny_case,
    write_head,
)
from llama_py.gguf.file_types import file_type

logs: list[Any] = []  # the library keeps the callbacks


def record(arch: str, variant: str, folder: Path) -> None:
    """Record the types of a tiny model's tensors, like dev.record.record_quantize."""
    case, found, path = tiny_case(arch, variant), recorded_types(), folder / "head.gguf"
    write_head(path, case)
    found[f"{arch}-{variant}"] = {type: packed(dry_run(path, type)) for type in case.types}
    (DATA / TYPES).write_bytes(lzma.compress(json.dumps(found).encode()))


def dry_run(path: Path, type: str) -> list[str]:
    """Return the tensors' types in a file of this type."""
    import llama_cpp

    api: Any = llama_cpp
    texts: list[bytes] = []
    logs.append(api.llama_log_callback(lambda _, text, __: texts.append(text)))
    api.llama_log_set(logs[-1], None)
    params = api.llama_model_quantize_default_params()
    params.ftype, params.dry_run, params.nthread = file_type(type).number, True, 1
    code = api.llama_model_quantize(bytes(path), bytes(path), ctypes.addressof(params))
    text = b"".join(texts).decode(errors="replace")
    assert code == 0, text
    return printed_types(text)
