"""Memory that tensors live in (ggml-backend-impl.h:ggml_backend_buffer)."""

from __future__ import annotations

from typing import Protocol

import numpy as np
import numpy.typing as npt

Bytes = npt.NDArray[np.uint8]


class Buffer(Protocol):
    """A piece of device memory. Tensors point into it by (`tensor.buffer`, `tensor.offset`)."""

    size: int
    is_host: bool

    def write(self, offset: int, data: Bytes) -> None:
        """Copy bytes in."""

    def read(self, offset: int, size: int) -> Bytes:
        """Copy bytes out."""

    def clear(self, value: int = 0) -> None:
        """Fill with one byte value."""
