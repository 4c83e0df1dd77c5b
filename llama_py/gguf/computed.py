"""Tensors of open files with bytes that are computed on reading."""

from __future__ import annotations

import weakref
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from ggml_py.types import GGMLType
from llama_py.gguf.file import TensorInfo

Bytes = npt.NDArray[np.uint8]


class ComputedTensor(TensorInfo):
    """A tensor without stored bytes. Reading `data` computes them; they need memory while in
    use."""

    __slots__ = ("_compute", "_last")
    _compute: Callable[[], Bytes]
    _last: Callable[[], Bytes | None]

    def __init__(
        self,
        name: str,
        type: GGMLType,
        ne: tuple[int, ...],
        nbytes: int,
        compute: Callable[[], Bytes],
    ) -> None:
        """compute: returns the bytes, [nbytes];  ne: sizes, at most four"""
        for field, value in (
            ("name", name), ("type", type), ("ne", (*ne, 1, 1, 1)[:4]), ("offset", 0),
            ("nbytes", nbytes), ("mapped", None), ("path", None),
            ("_compute", compute), ("_last", lambda: None),
        ):  # fmt: skip
            object.__setattr__(self, field, value)

    def rename(self, name: str) -> TensorInfo:
        return ComputedTensor(name, self.type, self.ne, self.nbytes, self._compute)

    @property
    def data(self) -> Bytes:
        """Computed bytes, read-only, [nbytes]."""
        found = self._last()
        if found is None:
            found = self._compute()
            found.flags.writeable = False
            object.__setattr__(self, "_last", weakref.ref(found))
        return found
