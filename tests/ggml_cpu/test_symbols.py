"""The C functions of kernels, under the names and in the libraries that other systems have."""

from __future__ import annotations

import ctypes
from typing import Any

import pytest

from ggml_cpu import symbols

# What the DLLs export of what kernels may call (x64).
KERNEL32 = {"SwitchToThread"}
NTDLL = {"__chkstk", "memcpy", "memset", "memmove"}
VCRUNTIME = {"memcpy", "memset", "memmove"}
NOT_IN_UCRT = {
    "sched_yield",
    "timespec_get",
    "hypotf",
    "ldexpf",
    "sincosf",
    "sincos",
    "bzero",
    "__bzero",
    "memset_pattern16",
    "__sincosf_stret",
    "__sincos_stret",
    "__exp10f",
    "__exp10",
    "__chkstk",
}
UCRT = symbols.EXTERNALS - NOT_IN_UCRT | {"_hypotf", "_timespec64_get"}
WINDOWS = {
    "ucrtbase.dll": UCRT,
    "kernel32.dll": KERNEL32,
    "ntdll.dll": NTDLL,
    "vcruntime140.dll": VCRUNTIME,
}
# libSystem has no functions that give sine and cosine in two places.
MACOS = {None: symbols.EXTERNALS - {"sincosf", "sincos", "__chkstk"}}


class Library:
    """With functions that are a number each."""

    def __init__(self, names: set[str] | frozenset[str]) -> None:
        nothing = ctypes.CFUNCTYPE(None)(lambda: None)
        for name in names:
            setattr(self, name, nothing)


@pytest.mark.parametrize(
    ("system", "libraries", "missing"),
    [
        ("win32", WINDOWS, NOT_IN_UCRT - {"sched_yield", "timespec_get", "hypotf", "__chkstk"}),
        ("darwin", MACOS, {"sincosf", "sincos", "__chkstk"}),
    ],
)
def test_all_that_there_is_is_bound(
    monkeypatch: pytest.MonkeyPatch, system: str, libraries: Any, missing: set[str]
) -> None:
    monkeypatch.setattr(symbols, "SYSTEM", system)
    monkeypatch.setattr(symbols, "_library", lambda name: Library(libraries[name]))
    bound = {*symbols.externals.__wrapped__()}
    assert bound == symbols.EXTERNALS - missing
    assert {*symbols.LIBM_UNARY, *symbols.LIBM_BINARY, *symbols._OTHER} <= bound


def test_here() -> None:
    found = symbols.externals()
    assert {*symbols.LIBM_UNARY, *symbols.LIBM_BINARY, *symbols._OTHER} <= {*found}
    assert all(address > 0 for address in found.values())
