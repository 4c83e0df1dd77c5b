"""Values of a file's rows as float32."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from ggml_py.backend import ReadsBlocks
from ggml_py.backend.registry import devices
from ggml_py.errors import GGUFError
from ggml_py.types import F16, F32, GGMLType

Bytes = npt.NDArray[np.uint8]
Floats = npt.NDArray[np.float32]


def row_reader(type: GGMLType) -> Callable[[Bytes, int], Floats]:
    """Return a function from rows of bytes [n_rows, ...] and n_per_row to values
    [n_rows, n_per_row].

    Raises GGUFError for a type without values, such as I32.
    """
    if type == F32:
        return lambda rows, n: rows.view(np.float32)
    if type == F16:
        return lambda rows, n: rows.view(np.float16).astype(np.float32)
    found = (d.block_reader(type) for d in devices("ref") if isinstance(d, ReadsBlocks))
    decode = next(found, None)
    if decode is None:
        raise GGUFError(f"values of type {type} cannot be read; use an F32, F16 or BF16 file")
    return lambda rows, n: decode(rows.reshape(-1, type.type_size)).reshape(-1, n)
