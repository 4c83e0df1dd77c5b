"""Loads object code without LLVM, which would take 40 MiB and 30 ms to load.

LLVM's objects for kernels on x86-64 Linux use one relocation type, R_X86_64_64: absolute 64-bit
addresses (ELF-64 Object File Format; System V ABI, AMD64). LLVM loads all other code (mcjit.py).
"""

from __future__ import annotations

import ctypes
import mmap
import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ggml_py.errors import BackendError
from ggml_py.machine import host

_HEADER = np.dtype([
    ("magic", "S4"), ("bits", "u1"), ("order", "u1"), ("", "V10"), ("type", "<u2"),
    ("machine", "<u2"), ("", "V20"), ("sections", "<u8"), ("", "V10"), ("entry", "<u2"),
    ("n_sections", "<u2"), ("names", "<u2"),
])  # fmt: skip
_SECTION = np.dtype([
    ("name", "<u4"), ("type", "<u4"), ("flags", "<u8"), ("address", "<u8"), ("offset", "<u8"),
    ("size", "<u8"), ("link", "<u4"), ("info", "<u4"), ("alignment", "<u8"), ("entry", "<u8"),
])  # fmt: skip
_SYMBOL = np.dtype(
    [
        ("name", "<u4"),
        ("info", "u1"),
        ("other", "u1"),
        ("section", "<u2"),
        ("value", "<u8"),
        ("size", "<u8"),
    ]
)
_RELOCATION = np.dtype([("offset", "<u8"), ("type", "<u4"), ("symbol", "<u4"), ("addend", "<i8")])

_KIND = (b"\x7fELF", 2, 1, 1, 62)  # ELF64, little-endian, ET_REL, EM_X86_64
_PROGBITS, _SYMBOLS, _RELOCATIONS, _UNWIND = 1, 2, 4, 0x70000001
_WRITE, _ALLOCATE = 1, 2  # section flags SHF_WRITE, SHF_ALLOC
_R_X86_64_64 = 1
_LINE = 64  # bytes: objects start at cache lines, so this is the maximum section alignment


class _Unusual(Exception):
    """The object file needs a feature that only LLVM's loader supports."""


@dataclass(frozen=True)
class LoadedCode:
    """Loaded code; its memory is released with this object.

    addresses   address of each symbol
    """

    addresses: Mapping[str, int]
    _memory: object


class _Object:
    """A parsed object file. Raises ValueError if truncated, _Unusual if only LLVM can load it.

    begin   offset of each section in memory; -1 if it is not loaded
    size    total bytes of the loaded sections
    """

    def __init__(self, code: bytes) -> None:
        self._code = code
        header = self._rows(_HEADER, 0, 1)[0]
        if tuple(header[n] for n in ("magic", "bits", "order", "type", "machine")) != _KIND:
            raise _Unusual
        self.sections = self._rows(_SECTION, int(header["sections"]), int(header["n_sections"]))
        tables = np.flatnonzero(self.sections["type"] == _SYMBOLS)
        if len(tables) != 1:
            raise _Unusual
        table = self.sections[tables[0]]
        self._symbols: NDArray[Any] = self._section_rows(_SYMBOL, table)
        self._names = bytes(self._bytes(self.sections[int(table["link"])]))
        self.begin, self.size = self._lay_out()

    def _rows(self, kind: np.dtype[Any], at: int, n: int) -> NDArray[Any]:
        if at + n * kind.itemsize > len(self._code):
            raise ValueError("object code is truncated")
        return np.frombuffer(self._code, kind, n, at)

    def _section_rows(self, kind: np.dtype[Any], section: Any) -> NDArray[Any]:
        return self._rows(kind, int(section["offset"]), int(section["size"]) // kind.itemsize)

    def _bytes(self, section: Any) -> NDArray[np.uint8]:
        return self._rows(np.dtype(np.uint8), int(section["offset"]), int(section["size"]))

    def _lay_out(self) -> tuple[NDArray[np.int64], int]:
        begin, end = np.full(len(self.sections), -1, np.int64), 0
        for i in np.flatnonzero(self.sections["flags"] & _ALLOCATE):
            section = self.sections[i]
            kind, alignment = int(section["type"]), max(1, int(section["alignment"]))
            if kind == _UNWIND:  # .eh_frame: kernels throw no exceptions
                continue
            if kind != _PROGBITS or section["flags"] & _WRITE or alignment > _LINE:
                raise _Unusual
            begin[i] = -(-end // alignment) * alignment
            end = int(begin[i]) + len(self._bytes(section))
            if end > len(self._code) + _LINE * len(begin):
                raise ValueError("sections overlap")
        return begin, end

    def put(
        self, memory: NDArray[np.uint8], at: int, symbol: str, externals: Mapping[str, int]
    ) -> int:
        """Copy the sections into `memory`, at address `at`, and apply their relocations.

        Returns:
            The address of `symbol`, or 0 if the object does not define it.
        """
        for begin, section in zip(self.begin, self.sections, strict=True):
            if begin >= 0:
                memory[begin : begin + int(section["size"])] = self._bytes(section)
        where = self._resolve_symbols(at, externals)
        for section in self.sections[self.sections["type"] == _RELOCATIONS]:
            begin, target = self.begin[section["info"]], self.sections[section["info"]]
            if begin >= 0:
                part = memory[begin : begin + int(target["size"])]
                _relocate(part, self._section_rows(_RELOCATION, section), where)
        own = np.flatnonzero(self._symbols["section"])
        return next((int(where[i]) for i in own if self._name(i) == symbol), 0)

    def _resolve_symbols(self, at: int, externals: Mapping[str, int]) -> NDArray[np.int64]:
        """Return the address of each symbol, 0 if unresolved."""
        section = self._symbols["section"].astype(np.int64)
        known = (section > 0) & (section < len(self.begin))
        begin = np.where(known, self.begin[np.where(known, section, 0)], -1)
        where = np.where(begin >= 0, at + begin + self._symbols["value"].astype(np.int64), 0)
        for i in np.flatnonzero(section == 0):
            where[i] = externals.get(self._name(i), 0)
        return where

    def _name(self, i: np.intp) -> str:
        at = int(self._symbols[i]["name"])
        return self._names[at : self._names.index(b"\0", at)].decode("ascii")


def _relocate(part: NDArray[np.uint8], relocations: NDArray[Any], where: NDArray[np.int64]) -> None:
    """Apply R_X86_64_64 relocations to a section: symbol address plus addend."""
    at, values = relocations["offset"].astype(np.int64), where[relocations["symbol"]]
    if np.any(relocations["type"] != _R_X86_64_64) or not np.all(values):
        raise _Unusual
    if np.any(at > len(part) - 8):
        raise ValueError("a relocation is outside its section")
    words = (values + relocations["addend"]).view(np.uint8).reshape(-1, 8)
    part[at[:, None] + np.arange(8)] = words


def is_possible() -> bool:
    """Return True on 64-bit x86 Linux, the only system that this loader supports."""
    return host.SYSTEM == "linux" and host.machine() == "x86_64" and sys.maxsize > 2**32


def place(codes: Mapping[str, bytes], externals: Mapping[str, int]) -> LoadedCode | None:
    """Load object files into executable memory; return None without any usable object.

    The result lacks the symbols of objects that are damaged or that only LLVM can load.

    Args:
        codes: Object files by the symbol to look up in each.
        externals: Addresses of external functions by name.

    Raises:
        BackendError: The system does not permit executable memory.
    """
    objects = {symbol: found for symbol, code in codes.items() if (found := _parse(code))}
    begins = np.cumsum([0, *(-(-o.size // _LINE) * _LINE for o in objects.values())])
    if not begins[-1]:
        return None
    memory = mmap.mmap(-1, int(begins[-1]), mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    view, addresses = np.frombuffer(memory, np.uint8), {}
    for (symbol, found), begin in zip(objects.items(), begins, strict=False):
        with suppress(_Unusual, ValueError, IndexError):
            at = view.ctypes.data + int(begin)
            addresses[symbol] = found.put(view[begin:], at, symbol, externals)
    _make_executable(view)
    return LoadedCode({symbol: at for symbol, at in addresses.items() if at}, memory)


def _parse(code: bytes) -> _Object | None:
    try:
        return _Object(code)
    except (_Unusual, ValueError, IndexError):
        return None


def _make_executable(memory: NDArray[np.uint8]) -> None:
    """Make memory executable and read-only; BackendError if the system refuses."""
    libc = ctypes.CDLL(None, use_errno=True)
    at, size = ctypes.c_void_p(memory.ctypes.data), ctypes.c_size_t(len(memory))
    if libc.mprotect(at, size, mmap.PROT_READ | mmap.PROT_EXEC):
        raise BackendError(
            "the system does not permit running generated code "
            f"({os.strerror(ctypes.get_errno())}), which compiled kernels need; allow it, or "
            "choose another backend"
        )
