"""Decoding of GGUF metadata: a bounds-checked cursor, and the file's key-values.

Value types, their ids and limits: gguf.h:enum gguf_type, gguf.cpp:gguf_reader.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ggml_py.errors import GGUFError
from llama_py.gguf.pages import release_pages

# Scalar types by their id in the file; with the codes of struct and NumPy.
_CODES = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_SCALARS = {kind: struct.Struct("<" + code) for kind, code in _CODES.items()}
_BOOL, STRING, ARRAY = 7, 8, 9
# Names of the types.
KINDS = {
    "u8": 0,
    "i8": 1,
    "u16": 2,
    "i16": 3,
    "u32": 4,
    "i32": 5,
    "f32": 6,
    "bool": 7,
    "str": STRING,
    "arr": ARRAY,
    "u64": 10,
    "i64": 11,
    "f64": 12,
}
_NAMES = {number: name for name, number in KINDS.items()}

_U32 = struct.Struct("<I")
_U64 = struct.Struct("<Q")
_U32_U64 = struct.Struct("<IQ")

# Limits for values in a file. A sparse file of any size takes no disk space.
_MAX_HEAD = 2**27  # bytes before the tensor data; the largest vocabularies take 2**24
_MAX_KEY_BYTES = 65535  # limit in the GGUF specification
_MAX_NESTING = 4  # arrays in arrays; known files have one level
_MAX_INNERARRAYS = 2**18

DAMAGED = "the file is damaged, download or convert it again"

MetaValue: TypeAlias = str | int | float | bool | list[Any] | NDArray[Any]


class Metadata(Mapping[str, MetaValue]):
    """The key-values in file order. Arrays are decoded and cached at the first access.

    A numeric array is a read-only 1-D ndarray, an array of strings a `list[str]`, an array of
    arrays a list of arrays. llama.cpp treats a string (such as a token) as bytes, so bytes that
    are not UTF-8 do not raise: they become lone surrogates, and
    `text.encode("utf-8", "surrogateescape")` returns the exact bytes of any string.
    """

    def __init__(
        self,
        values: Mapping[str, MetaValue | StoredArray],
        places: Mapping[str, tuple[int, int]],
        data: mmap.mmap,
    ) -> None:
        """Store values; places: byte range of each value in the data, type included."""
        self._values = dict(values)
        self._places, self._data = places, data

    @property
    def stored_values(self) -> dict[str, bytes]:
        """Type and bytes of each value, in the file's format."""
        return {key: self._data[start:end] for key, (start, end) in self._places.items()}

    def kind(self, key: str) -> str:
        """Return the stored type of a value: "u32", "str", "arr[f32]", ...; KeyError if missing."""
        start, _ = self._places[key]
        number, item = struct.unpack("<II", self._data[start : start + 8].ljust(8, b"\0"))
        return f"arr[{_NAMES[item]}]" if number == ARRAY else _NAMES[number]

    def __getitem__(self, key: str) -> MetaValue:
        value = self._values[key]
        if isinstance(value, StoredArray):
            value = self._values[key] = value.decode()
        return value

    def __contains__(self, key: object) -> bool:
        return key in self._values  # Mapping's own would decode the array

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def count(self, key: str) -> int:
        """Return the number of items of an array without decoding it; 0 for other or missing
        values."""
        value = self._values.get(key)
        if isinstance(value, StoredArray):
            return value.count()
        return len(value) if isinstance(value, list | np.ndarray) else 0

    def replace_values(self, values: Mapping[str, MetaValue]) -> Metadata:
        """Return metadata with some values replaced; `stored_values` and `kind` are unchanged."""
        return Metadata({**self._values, **values}, self._places, self._data)

    def __len__(self) -> int:
        return len(self._values)


@dataclass(frozen=True, slots=True)
class StoredArray:
    """An array with checked bytes (item type, count, items) that is not decoded yet."""

    data: mmap.mmap
    start: int
    end: int

    def count(self) -> int:
        return int(_U32_U64.unpack_from(self.data, self.start)[1])

    def decode(self) -> list[Any] | NDArray[Any]:
        decoded = _decode_array(self.data[self.start : self.end], 0)[0]
        release_pages(self.data, self.start, self.end)
        return decoded


class Cursor:
    """A position in the bytes of the file at `path`; every step checks the remaining size.

    `what` names the element in the GGUFError of a step past `end`: the end of the file, or of
    the maximum header (key-values and tensor infos).
    """

    def __init__(self, path: Path, data: mmap.mmap) -> None:
        self.path, self.data = path, data
        self.pos, self.size = 0, len(data)
        self.end = min(self.size, _MAX_HEAD)
        limit = "the end of the file" if self.end == self.size else "the limit of metadata"
        self.past = f"past {limit} at byte {self.end}"
        self.inner_arrays = 0

    def error(self, message: str) -> GGUFError:
        return GGUFError(f"{self.path}: {message}")

    def skip(self, n: int, what: str) -> int:
        """Step over n bytes; return their start."""
        start = self.pos
        if n > self.end - start:
            raise self.error(f"{what} at byte {start} needs {n} bytes, {self.past}; {DAMAGED}")
        self.pos += n
        return start

    def scalar(self, layout: struct.Struct, what: str) -> Any:
        return layout.unpack_from(self.data, self.skip(layout.size, what))[0]

    def u32(self, what: str) -> int:
        return int(self.scalar(_U32, what))

    def u64(self, what: str) -> int:
        return int(self.scalar(_U64, what))

    def count(self, what: str, min_size: int) -> int:
        """Read the number of `what`; GGUFError if they exceed the file at `min_size` bytes each."""
        n = self.u64(f"the number of {what}")
        self.check_room(n, what, min_size)
        return n

    def check_room(self, n: int, what: str, min_size: int) -> None:
        room = (self.end - self.pos) // min_size
        if n > room:
            raise self.error(
                f"{n} {what} declared at byte {self.pos}, but only {room} fit; {DAMAGED}"
            )

    def string(self, what: str, max_bytes: int | None = None) -> bytes:
        n = self.u64(f"the length of {what}")
        if max_bytes is not None and n > max_bytes:
            raise self.error(
                f"{what} at byte {self.pos} has {n} bytes, more than {max_bytes}; {DAMAGED}"
            )
        start = self.skip(n, what)
        return self.data[start : self.pos]

    def identifier(self, what: str, max_bytes: int) -> str:
        """Read a key or a tensor's name, which is short UTF-8."""
        raw = self.string(what, max_bytes)
        try:
            return raw.decode()
        except UnicodeDecodeError:
            raise self.error(f"{what} is not UTF-8: {raw[:80]!r}; {DAMAGED}") from None


def read_metadata(cursor: Cursor, n_kv: int) -> Metadata:
    """Read n_kv key-values. GGUFError for a bad, empty or repeated key, or a bad value."""
    values: dict[str, MetaValue | StoredArray] = {}
    places: dict[str, tuple[int, int]] = {}
    for i in range(n_kv):
        key = cursor.identifier(f"key {i}", _MAX_KEY_BYTES)
        if not key:
            raise cursor.error(f"key {i} at byte {cursor.pos} is empty; {DAMAGED}")
        if key in values:
            raise cursor.error(f"key {quote_text(key)} occurs twice; convert the model again")
        start = cursor.pos
        values[key] = _read_value(cursor, f"the value of {quote_text(key)}")
        places[key] = start, cursor.pos
    return Metadata(values, places, cursor.data)


def scalar(kind: int) -> struct.Struct:
    """Return the storage format of a number type."""
    return _SCALARS[kind]


def printable(text: str) -> str:
    """Escape characters that could move a terminal's cursor."""
    return text if text.isprintable() else repr(text)[1:-1]


def quote_text(text: str) -> str:
    """Quote a text for an error message, on one line and shortened."""
    return repr(text if len(text) <= 80 else text[:77] + "...")


def describe(value: object) -> str:
    """Describe a value of the wrong type or size: an integer itself, or the type."""
    if value is None:
        return "missing"
    return str(value) if type(value) is int else f"a {type(value).__name__}"


def _read_value(cursor: Cursor, what: str) -> MetaValue | StoredArray:
    kind = cursor.u32(f"the type of {what}")
    if kind == ARRAY:
        start = cursor.pos
        _skip_array(cursor, what, 1)
        return StoredArray(cursor.data, start, cursor.pos)
    if kind == STRING:
        return cursor.string(what).decode("utf-8", "surrogateescape")
    if kind not in _SCALARS:
        raise _bad_type(cursor, kind, what)
    value: int | float | bool = cursor.scalar(_SCALARS[kind], what)
    return value


def _skip_array(cursor: Cursor, what: str, depth: int) -> None:
    """Step over an array (item type u32, count u64, items), checking all items."""
    if depth > _MAX_NESTING:
        raise cursor.error(
            f"{what} at byte {cursor.pos} has more than {_MAX_NESTING} levels of arrays; {DAMAGED}"
        )
    kind = cursor.u32(f"the item type of {what}")
    n = cursor.u64(f"the item count of {what}")
    if kind in _SCALARS:
        cursor.check_room(n, f"items in {what}", _SCALARS[kind].size)
        cursor.skip(n * _SCALARS[kind].size, what)
    elif kind == STRING:
        cursor.check_room(n, f"strings in {what}", _U64.size)
        _skip_strings(cursor, what, n)
    elif kind == ARRAY:
        cursor.check_room(n, f"arrays in {what}", _U32_U64.size)
        cursor.inner_arrays += n
        if cursor.inner_arrays > _MAX_INNERARRAYS:
            raise cursor.error(f"{what} has more than {_MAX_INNERARRAYS} inner arrays; {DAMAGED}")
        for _ in range(n):
            _skip_array(cursor, what, depth + 1)
    else:
        raise _bad_type(cursor, kind, what)


def _skip_strings(cursor: Cursor, what: str, n: int) -> None:
    # A vocabulary has half a million strings, so this walk is most of the time that opening takes.
    length_at, data, pos = _U64.unpack_from, cursor.data, cursor.pos
    last = cursor.end - _U64.size
    for i in range(n):
        if pos > last:
            raise cursor.error(f"string {i} of {n} in {what} is {cursor.past}; {DAMAGED}")
        pos += _U64.size + length_at(data, pos)[0]
    if pos > cursor.end:
        raise cursor.error(f"{what} ends at byte {pos}, {cursor.past}; {DAMAGED}")
    cursor.pos = pos


def _bad_type(cursor: Cursor, kind: int, what: str) -> GGUFError:
    return cursor.error(
        f"{what} at byte {cursor.pos} has unknown type {kind}; known: 0 to 12; {DAMAGED}"
    )


def _decode_array(raw: bytes, pos: int) -> tuple[list[Any] | NDArray[Any], int]:
    """Decode the checked array at `pos` of `raw`; return it and its end."""
    kind, n = _U32_U64.unpack_from(raw, pos)
    pos += _U32_U64.size
    if kind == STRING:
        return _decode_strings(raw, pos, n)
    if kind == ARRAY:
        items = []
        for _ in range(n):
            item, pos = _decode_array(raw, pos)
            items.append(item)
        return items, pos
    # A bool is any byte there, and only 0 is false.
    stored = np.frombuffer(raw, "<" + _CODES[kind].replace("?", "B"), n, pos)
    values = stored != 0 if kind == _BOOL else stored.copy()
    values.flags.writeable = False
    return values, pos + stored.nbytes


def _decode_strings(raw: bytes, pos: int, n: int) -> tuple[list[str], int]:
    strings, length_at = [], _U64.unpack_from
    for _ in range(n):
        start = pos + _U64.size
        pos = start + length_at(raw, pos)[0]
        strings.append(str(raw[start:pos], "utf-8", "surrogateescape"))
    return strings, pos
