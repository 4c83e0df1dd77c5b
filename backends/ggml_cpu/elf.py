"""Object code put into memory without LLVM, which takes 40 MiB and 30 ms to load.

What LLVM makes of kernels for Linux on x86-64 refers to addresses in one way, as 64-bit words
(ELF-64 Object File Format; System V ABI, AMD64). Any other code is left to LLVM (mcjit.py).
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

_KIND = (b"\x7fELF", 2, 1, 1, 62)  # 64 bits, the lowest byte first, relocatable, of x86-64
_PROGBITS, _SYMBOLS, _RELOCATIONS, _UNWIND = 1, 2, 4, 0x70000001
_WRITE, _ALLOCATE = 1, 2  # flags of a section
_R_X86_64_64 = 1
_LINE = 64  # bytes: objects begin at lines of the cache, so no section may want more


class _Unusual(Exception):
    """An object file that is not as described above."""


@dataclass(frozen=True)
class LoadedCode:
    """Code in memory, which stays as long as this does.

    addresses   of symbols
    """

    addresses: Mapping[str, int]
    _memory: object


class _Object:
    """An object file's parts. ValueError where it ends too early, _Unusual for what LLVM has to do.

    begin   of each section in memory, from the first one's; -1 if it is not needed there
    size    bytes of all of them
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
            if kind == _UNWIND:  # nothing is thrown through kernels
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
        """Copy the sections into `memory`, which is at this address, and complete them; where the
        symbol is then, or 0 if there is none of that name."""
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
        """Return the address of each symbol, 0 for unresolved ones."""
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
    """Write addresses into a section."""
    at, values = relocations["offset"].astype(np.int64), where[relocations["symbol"]]
    if np.any(relocations["type"] != _R_X86_64_64) or not np.all(values):
        raise _Unusual
    if np.any(at > len(part) - 8):
        raise ValueError("a relocation is outside its section")
    words = (values + relocations["addend"]).view(np.uint8).reshape(-1, 8)
    part[at[:, None] + np.arange(8)] = words


def is_possible() -> bool:
    """Return True if this system's code can be loaded so."""
    return host.SYSTEM == "linux" and host.machine() == "x86_64" and sys.maxsize > 2**32


def place(codes: Mapping[str, bytes], externals: Mapping[str, int]) -> LoadedCode | None:
    """Place object files, each by a symbol that it has, in memory to be run. `externals` are
    addresses of functions elsewhere. None where there is nothing to run; those whose code is left
    to LLVM, or damaged, are not among its addresses. Raises BackendError where the system lets
    nothing run."""
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
    """Make memory executable and no longer writable."""
    libc = ctypes.CDLL(None, use_errno=True)
    at, size = ctypes.c_void_p(memory.ctypes.data), ctypes.c_size_t(len(memory))
    if libc.mprotect(at, size, mmap.PROT_READ | mmap.PROT_EXEC):
        raise BackendError(
            "the system does not permit running generated code "
            f"({os.strerror(ctypes.get_errno())}), which compiled kernels need; allow it, or "
            "choose another backend"
        )
