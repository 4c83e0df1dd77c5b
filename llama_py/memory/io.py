"""The bytes of a saved state: read back in the order written, every length checked."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import numpy.typing as npt

from ggml_py.errors import ContextError

_COUNT = struct.Struct("<Q")


class StateWriter:
    """Collects the parts of a state."""

    def __init__(self) -> None:
        self.parts: list[bytes | memoryview] = []

    def count(self, n: int) -> None:
        self.parts.append(_COUNT.pack(n))

    def text(self, value: str) -> None:
        self.blob(np.frombuffer(value.encode(), np.uint8))

    def array(self, values: npt.NDArray[Any]) -> None:
        self.blob(np.frombuffer(values.tobytes(), np.uint8))

    def blob(self, data: npt.NDArray[np.uint8]) -> None:
        """Append contiguous data without a copy; it must not change afterwards."""
        self.count(data.size)
        self.parts.append(data.data)

    def bytes(self) -> bytes:
        return b"".join(self.parts)


class StateReader:
    """Reader of a saved state. ContextError if the state is too short or does not fit."""

    def __init__(self, data: bytes | memoryview) -> None:
        self._data = np.frombuffer(data, np.uint8)
        self._at = 0

    def _take(self, n: int) -> npt.NDArray[np.uint8]:
        left = self._data.size - self._at
        if n > left:
            raise ContextError(f"the state is truncated: {n} bytes needed, {left} left")
        self._at += n
        return self._data[self._at - n : self._at]

    def count(self) -> int:
        return int(_COUNT.unpack(self._take(_COUNT.size).tobytes())[0])

    def text(self) -> str:
        return self._take(self.count()).tobytes().decode(errors="replace")

    def array(self, dtype: Any, n: int | None = None) -> npt.NDArray[Any]:
        size = None if n is None else n * np.dtype(dtype).itemsize
        raw = self.blob(size)
        if raw.size % np.dtype(dtype).itemsize:
            raise ContextError(
                f"the state is damaged: {raw.size} bytes are not an array of {np.dtype(dtype)}"
            )
        return np.frombuffer(raw.tobytes(), dtype)

    def blob(self, size: int | None = None) -> npt.NDArray[np.uint8]:
        """Read the next part; `size`: required number of bytes."""
        found = self.count()
        if size is not None and found != size:
            raise ContextError(
                f"the state does not fit this context: a part must have {size} bytes, got {found}; "
                "use the parameters of the context that saved it"
            )
        return self._take(found)

    def end(self) -> None:
        """Raise ContextError if bytes remain."""
        if self._at != self._data.size:
            raise ContextError(f"the state has {self._data.size - self._at} extra bytes at its end")
