"""Facts about a model for the choice of types, from its metadata."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ggml_py.errors import GGUFError
from llama_py.gguf.file import GGUFFile
from llama_py.models import architecture, known_architectures
from llama_py.models.trunks.rules import QuantizeRules


@dataclass(frozen=True)
class QuantizedModel:
    """n_gqa   query heads per key and value head; 0: no attention
    is_70b  True if llama.cpp treats it as a 70B model, with more bits for values
    rules   rules of its architecture
    """

    arch: str
    n_layer: int
    n_expert: int
    n_gqa: int
    is_70b: bool
    rules: QuantizeRules

    @classmethod
    def from_file(cls, file: GGUFFile) -> QuantizedModel:
        """Read the facts; GGUFError for a file without its number of layers."""
        arch = file.architecture
        n_layer = _first_layer_value(file.metadata.get(f"{arch}.block_count"), None)
        if n_layer is None:
            raise GGUFError(f"{file.path}: {arch}.block_count is missing; use the file of a model")
        n_head = _first_layer_value(file.metadata.get(f"{arch}.attention.head_count"), 0)
        n_head_kv = _first_layer_value(file.metadata.get(f"{arch}.attention.head_count_kv"), n_head)
        n_nextn = _first_layer_value(file.metadata.get(f"{arch}.nextn_predict_layers"), 0)
        known = arch in known_architectures()
        rules = architecture(arch).quantize_rules if known else QuantizeRules()
        large = rules.is_70b(n_layer, n_head, n_head_kv)
        n_expert = _first_layer_value(file.metadata.get(f"{arch}.expert_count"), 0)
        n_gqa = n_head // n_head_kv if n_head_kv else 0
        n_layer = rules.counted_layers(n_layer, n_nextn)
        return cls(arch, n_layer, n_expert, n_gqa, large, rules)


def _first_layer_value(value: Any, default: Any) -> Any:
    """Return the number, or the number of layer 0."""
    if isinstance(value, np.ndarray | list):
        value = value[0] if len(value) else default
    return default if value is None else int(value)
