"""C functions that compiled kernels may call, bound by the loaders (elf.py, mcjit.py)."""

from __future__ import annotations

import ctypes
import sys
from functools import cache

# Scalar functions of the SIMD API: `v.expf(x)`, `v.powf(x, y)`.
LIBM_UNARY = (
    "expf",
    "exp2f",
    "expm1f",
    "logf",
    "log2f",
    "log10f",
    "log1pf",
    "sinf",
    "cosf",
    "tanf",
    "asinf",
    "acosf",
    "atanf",
    "sinhf",
    "coshf",
    "tanhf",
    "erff",
    "erfcf",
)
LIBM_BINARY = ("powf", "atan2f", "fmodf", "hypotf")

# Functions that LLVM calls if an instruction is missing, or as faster variants of the above.
_IMPLIED = (
    "sqrtf",
    "floorf",
    "ceilf",
    "truncf",
    "rintf",
    "roundf",
    "nearbyintf",
    "fmaf",
    "fminf",
    "fmaxf",
    "sqrt",
    "floor",
    "ceil",
    "trunc",
    "rint",
    "round",
    "fma",
    "fmod",
    "exp",
    "log",
    "pow",
    "sin",
    "cos",
    "tanh",
    "ldexpf",
    "ldexp",
    "sincosf",
    "sincos",
    "memcpy",
    "memset",
    "memmove",
)
# The same on some systems: macOS, and Windows (__chkstk, for functions with over a page of locals).
_IMPLIED_SOMEWHERE = (
    "memset_pattern16",
    "bzero",
    "__bzero",
    "__sincosf_stret",
    "__sincos_stret",
    "__exp10f",
    "__exp10",
    "__chkstk",
)
_OTHER = ("sched_yield", "syscall", "timespec_get", "abort")

EXTERNALS = frozenset((*LIBM_UNARY, *LIBM_BINARY, *_IMPLIED, *_IMPLIED_SOMEWHERE, *_OTHER))

SYSTEM = sys.platform
_WINDOWS_NAMES = {
    "sched_yield": "SwitchToThread",
    "timespec_get": "_timespec64_get",
    "hypotf": "_hypotf",
}
_LIBRARIES = {
    "linux": ("libm.so.6", None),
    "win32": ("ucrtbase.dll", "kernel32.dll", "vcruntime140.dll", "ntdll.dll"),
}


def kernel_symbol(kernel_name: str) -> str:
    """Return the symbol of a kernel's entry point in its object file."""
    return f"ggml_cpu.{kernel_name}"


def _library(name: str | None) -> ctypes.CDLL | None:
    """Load a C library; return None if it does not exist (musl has libm inside libc)."""
    try:
        return ctypes.CDLL(name)
    except OSError:
        return None


@cache
def externals() -> dict[str, int]:
    """Return the addresses of all EXTERNALS that this platform has."""
    libraries = [_library(name) for name in _LIBRARIES.get(SYSTEM, (None,))]
    addresses = {}
    for name in sorted(EXTERNALS):
        found = _WINDOWS_NAMES.get(name, name) if SYSTEM == "win32" else name
        library = next((lib for lib in libraries if hasattr(lib, found)), None)
        if library is not None:
            function = ctypes.cast(getattr(library, found), ctypes.c_void_p)
            addresses[name] = function.value or 0
    return addresses
