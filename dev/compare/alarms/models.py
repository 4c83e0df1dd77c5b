"""Tiny models with outliers: one channel of each norm is far larger than the others."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from dev import tiny_models as tiny
from llama_py.gguf.file import GGUFFile
from llama_py.gguf.write import content
from llama_py_tools.gguf.main import main as gguf

CHANNEL = 7
LARGE = {  # rows of 256 and more, for types with blocks of 256
    "embedding_length": 256,
    "feed_forward_length": 512,
    "attention.head_count": 4,
    "attention.head_count_kv": 2,
}


@dataclass(frozen=True)
class Outlier:
    """A tiny model, its weights' type, and by how much an outlier is larger."""

    arch: str
    variant: str
    type: str
    factor: float = 60.0
    keys: Mapping[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return f"{self.arch}-{self.variant}-{self.type}-outlier-{self.factor:g}"


OUTLIERS = (
    Outlier("llama", "dense", "Q4_K", 60, LARGE),
    Outlier("llama", "dense", "Q6_K", 1000, LARGE),
    Outlier("llama", "dense", "IQ4_XS", 60, LARGE),
    Outlier("llama", "dense", "Q2_K", 60, LARGE),
    Outlier("qwen35moe", "moe", "Q8_0", 60),
    Outlier("qwen3next", "moe", "Q4_0", 60),
    Outlier("gpt-oss", "moe", "MXFP4_MOE", 60),
    Outlier("kimi-linear", "moe", "Q5_1", 60),
    Outlier("falcon-h1", "dense", "F16", 60),
    Outlier("deepseek2", "moe", "BF16", 60),
)


def build(model: Outlier, folder: Path) -> Path:
    """Write the model's file, once."""
    path = folder / f"{model.name}.gguf"
    if path.exists():
        return path
    known = tiny.find(model.arch, model.variant)
    plain, spread = folder / "plain.gguf", folder / "spread.gguf"
    keys = {**known.keys, **model.keys}
    file = GGUFFile.open(tiny.write_file(plain, model.arch, replace(known, keys=keys)))
    tensors = []
    for info in file.tensors.values():
        if info.name.endswith("norm.weight") and info.type.name == "f32":
            values = info.data.view(np.float32).copy()
            values[CHANNEL] *= model.factor
            info = replace(info, data=values.view(np.uint8))
        tensors.append(info)
    spread.write_bytes(b"".join(map(bytes, content(file.metadata.stored_values, tensors))))
    with contextlib.redirect_stdout(io.StringIO()):
        code = gguf(["quantize", "--pure", str(spread), str(path), model.type])
    if code:
        raise SystemExit(f"{model.name}: cannot be quantized")
    return path
