"""Control vector as a value with arithmetic, saving and loading."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ggml_py._moved import Former
from ggml_py.errors import ContextError
from ggml_py.types import F32
from llama_py.adapters.control_vector import PREFIX, Directions, load_directions
from llama_py.gguf.file import GGUFFile, TensorInfo
from llama_py.gguf.write import content, encode
from llama_py.support.whole_file import replace_file

ARCHITECTURE = "controlvector"
HINT, COUNT = f"{ARCHITECTURE}.model_hint", f"{ARCHITECTURE}.layer_count"


@dataclass(frozen=True, eq=False)
class ControlVector:
    """A direction for each layer except the first. `2 * happy - sad` is also a ControlVector.

    directions  float32 [n_layer - 1, n_embd], from layer 1; zeros do not change a layer
    model_hint  architecture that it was trained with, or ""
    """

    directions: Directions = field(repr=False)
    model_hint: str = ""

    def __post_init__(self) -> None:
        values = np.ascontiguousarray(self.directions, np.float32)
        if values.ndim != 2:
            raise ContextError(
                f"directions must have shape [n_layer - 1, n_embd], got {values.shape}"
            )
        object.__setattr__(self, "directions", values)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> npt.NDArray[Any]:
        return np.array(self.directions, dtype or np.float32, copy=True)

    def __len__(self) -> int:
        """Return the number of directions."""
        return len(self.directions)

    def __getitem__(self, il: int) -> Directions:
        """Return the direction of layer il, from 1 on, [n_embd]."""
        if not 1 <= il <= len(self):
            raise ContextError(f"layer must be from 1 to {len(self)}, got {il}")
        row: Directions = self.directions[il - 1]
        return row

    def __iter__(self) -> Iterator[Directions]:
        return iter(self.directions)

    def __mul__(self, factor: float) -> ControlVector:
        return ControlVector(self.directions * np.float32(factor), self.model_hint)

    __rmul__ = __mul__

    def __truediv__(self, factor: float) -> ControlVector:
        return self * (1 / factor)

    def __neg__(self) -> ControlVector:
        return self * -1

    def __add__(self, other: ControlVector) -> ControlVector:
        """Add vectors, missing layers being zero; ContextError for other sizes."""
        a, b = sorted((self.directions, other.directions), key=len)
        if a.shape[1] != b.shape[1]:
            raise ContextError(
                f"control vectors of lengths {a.shape[1]} and {b.shape[1]} belong to different "
                "models"
            )
        total = b.copy()
        total[: len(a)] += a
        return ControlVector(total, self.model_hint or other.model_hint)

    def __sub__(self, other: ControlVector) -> ControlVector:
        return self + -other

    def select_layers(self, layers: range) -> ControlVector:
        """Return a vector with only some layers."""
        kept = [il in layers for il in range(1, len(self) + 1)]
        return ControlVector(self.directions * np.array(kept)[:, None], self.model_hint)

    def save(self, path: str | Path) -> None:
        """Write it as llama.cpp's file (cvector-generator.cpp:export_gguf)."""
        stored = {
            "general.architecture": encode("str", ARCHITECTURE),
            HINT: encode("str", self.model_hint),
            COUNT: encode("i32", len(self)),
        }
        tensors = []
        for il, row in enumerate(self, 1):
            raw = np.frombuffer(row.tobytes(), np.uint8)
            info = TensorInfo(f"{PREFIX}{il}", F32, (row.size, 1, 1, 1), 0, raw.size, raw)
            tensors.append(info)
        replace_file(path, content(stored, tensors))

    @classmethod
    def load(cls, path: str | Path) -> ControlVector:
        """Load a GGUF file; GGUFError if it is not one."""
        with GGUFFile.open(path) as file:
            hint = file.metadata.get(HINT, "")
        return cls(load_directions([(path, 1.0)]), hint if isinstance(hint, str) else "")

    only = Former("select_layers")
