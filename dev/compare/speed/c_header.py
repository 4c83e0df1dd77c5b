"""ctypes structs from a C header, so that a library of any version is called correctly."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Mapping
from typing import Any

PLAIN: dict[str, Any] = {
    "bool": ctypes.c_bool, "int": ctypes.c_int, "float": ctypes.c_float, "size_t": ctypes.c_size_t,
    "int8_t": ctypes.c_int8, "int32_t": ctypes.c_int32, "uint32_t": ctypes.c_uint32,
    "int64_t": ctypes.c_int64, "uint64_t": ctypes.c_uint64, "double": ctypes.c_double,
}  # fmt: skip


class Header:
    """A header of plain structs, such as llama.h."""

    def __init__(self, text: str) -> None:
        without = re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL)
        self.text = re.sub(r"//[^\n]*", "", without)
        typedef = re.compile(r"typedef\s+(\w+)\s+(\w+)\s*;")
        names = {name: PLAIN[t] for t, name in typedef.findall(self.text) if t in PLAIN}
        self.types: Mapping[str, Any] = {**PLAIN, **names}

    def struct(self, name: str) -> type[ctypes.Structure]:
        """Return ctypes.Structure `name`; ValueError if it is missing or has an unknown type.

        Pointers to numbers are typed; others, and functions, are addresses.
        """
        found = re.search(rf"\bstruct\s+{name}\s*\{{(.*?)\}}", self.text, re.DOTALL)
        if not found:
            raise ValueError(f"no struct {name} in the header")
        lines = (line.strip() for line in found[1].split(";"))
        fields = [self._field(name, line) for line in lines if line]
        return type(name, (ctypes.Structure,), {"_fields_": fields})

    def _field(self, struct: str, line: str) -> tuple[str, Any]:
        kind, stars, name = self._parts(struct, line)
        if kind.endswith("_callback"):
            return name, ctypes.c_void_p
        if kind not in self.types and not stars:
            raise ValueError(f"struct {struct}: the type of '{line}' is not known")
        if kind not in self.types:
            return name, ctypes.c_void_p
        for_pointers = self.types[kind]
        for _ in range(stars):
            for_pointers = ctypes.POINTER(for_pointers)
        return name, for_pointers

    def _parts(self, struct: str, line: str) -> tuple[str, int, str]:
        """Return the name of the type, the number of `*`, and the field's name."""
        plain = re.sub(r"\benum\s+\w+", "int", re.sub(r"\b(const|struct)\b", "", line))
        found = re.fullmatch(r"\s*(\w+)((?:\s|\*)+)(\w+)", plain)
        if not found:
            raise ValueError(f"struct {struct}: '{line}' is not understood")
        return found[1], found[2].count("*"), found[3]


def enumerator(text: str, name: str) -> int | None:
    """Return the value that the header assigns to a name, or None."""
    found = re.search(rf"\b{re.escape(name)}\s*=\s*(\d+)", text)
    return int(found[1]) if found else None
