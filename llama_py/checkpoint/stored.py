"""A GGUF file as the result of a conversion, to find the checkpoint that has it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ggml_py.errors import ModelError
from llama_py.checkpoint.keys import OTHERS
from llama_py.checkpoint.shared_keys import Keys
from llama_py.gguf.file import GGUFFile
from llama_py.gguf.values import row_reader

KINDS = ("full_attention", "sliding_attention")


class StoredModel:
    """Keys and tensors of a file.

    arch     general.architecture, the prefix of the model's keys
    n_layer  layers without drafting layers;  n_draft  drafting layers
    """

    def __init__(self, file: GGUFFile) -> None:
        """Raises ModelError if the file lacks its number of layers."""
        self.file, self.arch = file, file.architecture
        n, self.n_draft = self.get("block_count"), self.get("nextn_predict_layers", 0)
        if type(n) is not int or type(self.n_draft) is not int or n < self.n_draft:
            raise ModelError(f"{file.path}: {self.arch}.block_count must be an integer, got {n}")
        self.n_layer = n - self.n_draft

    def get(self, key: str, default: Any = None) -> Any:
        """Return a value; of float32, the shortest decimal number."""
        name = key if key.startswith(OTHERS) else f"{self.arch}.{key}"
        value: Any = self.file.metadata.get(name)
        if value is None:
            return default
        if isinstance(value, np.ndarray):
            return value.tolist()
        return float(str(np.float32(value))) if isinstance(value, float) else value

    def restore(self, keys: Keys, prefers: Sequence[str]) -> dict[str, Any]:
        """Return values of config.json: the inverse of `Converter.copy`.

        prefers  names of values with several names, in place of the first
        """
        found = dict[str, Any]()
        for key, kind, names in keys:
            if (value := self.get(key)) is None:
                continue
            if kind.removesuffix("!") == "windows":
                value = [KINDS[bool(is_local)] for is_local in value]
            found[next((name for name in names if name in prefers), names[0])] = value
        return found

    def has(self, name: str) -> bool:
        """Return True if the file has this tensor."""
        return name in self.file.tensors

    @property
    def n_vocab(self) -> int:
        """Rows of the embeddings."""
        if not self.has("token_embd.weight"):
            raise ModelError(
                f"{self.file.path}: token_embd.weight is missing; use the file of a model"
            )
        return self.file.tensors["token_embd.weight"].ne[1]

    def values(self, name: str) -> npt.NDArray[np.float32] | None:
        """Return the values of a tensor, [n]; None if it is missing."""
        t = self.file.tensors.get(name)
        if t is None:
            return None
        rows = t.data.reshape(-1, t.type.row_size(t.ne[0]))
        return row_reader(t.type)(rows, t.ne[0]).reshape(-1)
