"""SentencePiece's compiled normalizer, `tokenizer.ggml.precompiled_charsmap`."""

from __future__ import annotations

from typing import Any

import numpy as np

from ggml_py.errors import TokenizerError
from llama_py.tokenizer.vocab import PREFIX, to_array

_KEY = PREFIX + "precompiled_charsmap"


class Charsmap:
    """Replaces the beginning of a text, like llama-vocab.cpp:llm_tokenizer_ugm.

    The data is a size in bytes, a double array of that size (S. Kanda, 2018, Space- and
    Time-Efficient String Dictionaries), and the replacements, each terminated by a zero. A unit
    of the array is a base in bits 10 to 30 (times 256 if bit 9 is set), bit 8 (a key ends here),
    and the byte of the transition; or bit 31, and the start of a replacement.
    """

    def __init__(self, value: Any) -> None:
        array = to_array(value)
        if array.ndim != 1 or array.dtype.kind not in "iu" or array.dtype.itemsize != 1:
            raise TokenizerError(
                f"{_KEY} must be bytes, got {array.dtype} {array.shape}; convert the model again"
            )
        data = array.tobytes()
        size = int.from_bytes(data[:4], "little")
        if 4 + size >= len(data) or size < 4:
            raise TokenizerError(
                f"{_KEY} declares a table of {size} bytes, but has {len(data)} bytes in total; "
                "convert the model again"
            )
        self._units: list[int] = np.frombuffer(data, "<u4", size // 4, 4).tolist()
        self._replacements = data[4 + size :]

    def find_longest(self, text: bytes, start: int) -> tuple[int, bytes] | None:
        """Return the end of the longest key at `start`, and its replacement.

        Raises TokenizerError for a table with invalid offsets.
        """
        try:
            end, offset = self._walk(text, start)
            if end == start:
                return None
            return end, self._replacements[offset : self._replacements.index(0, offset)]
        except (IndexError, ValueError):
            raise TokenizerError(f"{_KEY} is damaged; convert the model again") from None

    def _walk(self, text: bytes, start: int) -> tuple[int, int]:
        units = self._units
        end, offset, node = start, 0, _base(units[0])
        for at in range(start, len(text)):
            node ^= text[at]
            unit = units[node]
            if text[at] == 0 or unit & 0x800000FF != text[at]:
                break
            node ^= _base(unit)
            if unit & 0x100:
                end, offset = at + 1, units[node] & 0x7FFFFFFF
        return end, offset


def _base(unit: int) -> int:
    return unit >> 10 << ((unit & 0x200) >> 6)
