"""What the choice of types wants to know of a model, from its metadata alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ggml_py.errors import GGUFError, UnknownArchitecture
from llama_py.gguf_file import GGUFFile
from llama_py.models import architecture

# As `Architecture.is_70b`, of architectures that we do not run: with so many layers.
LAYERS_OF_70B = {"olmo": 80, "jais2": 68}


@dataclass(frozen=True)
class Model:
    """n_gqa   heads that share a key and a value; 0 for none
    is_70b  whether it is one of those that llama.cpp calls so, whose values get more bits
    """

    arch: str
    n_layer: int
    n_expert: int
    n_gqa: int
    is_70b: bool

    @classmethod
    def of(cls, file: GGUFFile) -> Model:
        """GGUFError for a file that does not say how many layers there are."""
        arch = file.architecture
        n_layer = _first(file.metadata.get(f"{arch}.block_count"), None)
        if n_layer is None:
            raise GGUFError(f"{file.path}: has no {arch}.block_count; give the file of a model")
        n_head = _first(file.metadata.get(f"{arch}.attention.head_count"), 0)
        n_head_kv = _first(file.metadata.get(f"{arch}.attention.head_count_kv"), n_head)
        large = _is_70b(arch, n_layer, n_head, n_head_kv)
        n_expert = _first(file.metadata.get(f"{arch}.expert_count"), 0)
        return cls(arch, n_layer, n_expert, n_head // n_head_kv if n_head_kv else 0, large)


def _first(value: Any, default: Any) -> Any:
    """The number, or that of layer 0."""
    if isinstance(value, np.ndarray | list):
        value = value[0] if len(value) else default
    return default if value is None else int(value)


def _is_70b(arch: str, n_layer: int, n_head: int, n_head_kv: int) -> bool:
    if arch in LAYERS_OF_70B:
        return n_layer == LAYERS_OF_70B[arch]
    try:
        return architecture(arch).is_70b(n_layer, n_head, n_head_kv)
    except UnknownArchitecture:
        return False
