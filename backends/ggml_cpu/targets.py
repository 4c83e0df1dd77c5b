"""Named target CPUs, the values of `LLAMA_PY_CPU`, with the LLVM features that kernels use.

If a CPU supports several targets, the last one in NAMED is the best.
"""

from __future__ import annotations

from typing import NamedTuple


class NamedTarget(NamedTuple):
    """A target: its family (x86 or ARM), LLVM's CPU name, and the required features."""

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
AMX_FEATURES = _set("amx-tile amx-int8 amx-bf16")  # also need permission of the operating system
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

# Features that select different kernel code.
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
