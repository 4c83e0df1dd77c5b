"""CPUs by name: what `LLAMA_PY_CPU` may say, each with the LLVM features that its kernels count on.

A later one of the same family is better where a CPU has both.
"""

from __future__ import annotations

from typing import NamedTuple


class NamedTarget(NamedTuple):
    """A kind of CPU: what LLVM calls one, and features that it has."""

    x86: bool
    cpu: str
    features: frozenset[str]


def _set(text: str) -> frozenset[str]:
    return frozenset(text.split())


_SSE2 = _set("sse2")
_SSE42 = _SSE2 | _set("sse3 ssse3 sse4.1 sse4.2 popcnt cx16")
_AVX2 = _SSE42 | _set("avx avx2 fma f16c bmi bmi2 lzcnt movbe")
_AVX512 = _AVX2 | _set("avx512f avx512bw avx512cd avx512dq avx512vl")
_VNNI = _AVX512 | _set("avx512vnni")
_BF16 = _VNNI | _set("avx512bf16")
AMX_FEATURES = _set("amx-tile amx-int8 amx-bf16")  # an operating system has to allow them
_NEON = _set("neon")

NAMED = {
    "sse2": NamedTarget(True, "x86-64", _SSE2),
    "sse4.2": NamedTarget(True, "x86-64-v2", _SSE42),
    "avx2": NamedTarget(True, "x86-64-v3", _AVX2),
    "avx-vnni": NamedTarget(True, "x86-64-v3", _AVX2 | _set("avxvnni")),
    "avx512": NamedTarget(True, "x86-64-v4", _AVX512),
    "avx512-vnni": NamedTarget(True, "x86-64-v4", _VNNI),
    "avx512-bf16": NamedTarget(True, "x86-64-v4", _BF16),
    "avx512-amx": NamedTarget(True, "x86-64-v4", _BF16 | AMX_FEATURES),
    "neon": NamedTarget(False, "generic", _NEON),
    "neon-dotprod": NamedTarget(False, "generic", _NEON | _set("dotprod")),
    "neon-i8mm": NamedTarget(False, "generic", _NEON | _set("dotprod i8mm")),
    "neon-bf16": NamedTarget(False, "generic", _NEON | _set("dotprod i8mm bf16")),
}

# Of the features, those by which CPUs differ in what kernels do with them.
TELLING = (
    "ssse3",
    "avx2",
    "avxvnni",
    "avx512bw",
    "avx512vnni",
    "avx512bf16",
    "amx-int8",
    "amx-bf16",
    "neon",
    "dotprod",
    "i8mm",
    "bf16",
)
