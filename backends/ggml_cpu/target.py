"""The target CPU of the kernels: its name, LLVM features, vector width and tile size.

Planning (scratch sizes, panel layouts) uses this module, so it does not import Numba or LLVM.
`LLAMA_PY_CPU` selects a target of `targets.py` that this machine supports. `NUMBA_CPU_NAME` and
`NUMBA_CPU_FEATURES` (set both) select any other CPU, like in Numba.
"""

from __future__ import annotations

import os

from ggml_cpu.host_cpu import host_cpu
from ggml_cpu.targets import AMX_FEATURES, NAMED, TELLING
from ggml_py import host
from ggml_py.errors import BackendError

TRIPLE: str = host_cpu().triple
X86: bool = TRIPLE.startswith(("x86", "i686"))
ARM64: bool = TRIPLE.startswith(("aarch64", "arm64"))


def host_features() -> dict[str, bool]:
    """Return this machine's features by LLVM name, True if code may use the feature."""
    found = dict(host_cpu().features)
    if ARM64:
        found |= dict.fromkeys(("neon", *host.arm_features()), True)
    if any(found.get(name, False) for name in AMX_FEATURES) and not host.allows_amx():
        found |= dict.fromkeys(AMX_FEATURES, False)
    return found


def _choose_target() -> tuple[str, dict[str, bool]]:
    """Return name and features of the target CPU, from the environment variables or the host."""
    if name := os.environ.get("LLAMA_PY_CPU", ""):
        return _find_target(name)
    cpu = os.environ.get("NUMBA_CPU_NAME", "host") or "host"
    text = os.environ.get("NUMBA_CPU_FEATURES")
    if text is not None:
        features = {word[1:]: word[0] == "+" for word in text.split(",") if word}
    else:
        features = host_features() if cpu == "host" else {}
    return host_cpu().name if cpu == "host" else cpu, features


def _find_target(name: str) -> tuple[str, dict[str, bool]]:
    """Return CPU name and features of a target; BackendError if this machine lacks a feature."""
    found = host_features()
    possible = usable(found)
    if name in possible:
        return NAMED[name].cpu, dict.fromkeys(NAMED[name].features, True)
    why = "is not a known instruction set of this machine"
    if name in NAMED and NAMED[name].x86 == X86:
        lacking = ", ".join(sorted(f for f in NAMED[name].features if not found.get(f, False)))
        why = f"needs {lacking}, which this machine ({host_cpu().name}) lacks"
    raise BackendError(f"LLAMA_PY_CPU={name} {why}; choose one of {', '.join(possible) or 'none'}")


def usable(features: dict[str, bool]) -> list[str]:
    """Return the names in NAMED that a CPU with the given features supports."""
    return [
        name
        for name, known in NAMED.items()
        if known.x86 == X86 and all(features.get(f, False) for f in known.features)
    ]


CPU_NAME: str
FEATURES: dict[str, bool]
CPU_NAME, FEATURES = _choose_target()


def has(*features: str) -> bool:
    """Return True if the target has all the given LLVM features."""
    return all(FEATURES.get(name, False) for name in features)


AVX512: bool = has("avx512f", "avx512bw", "avx512vl", "avx512dq")
AVX2: bool = has("avx2", "fma", "f16c")
# VNNI: vpdpbusd, sums of four byte products in i32. PAIRS: pmaddubsw instead, sums of two in i16.
VNNI: bool = has("avx512vnni") if AVX512 else AVX2 and has("avxvnni")
PAIRS: bool = X86 and has("ssse3") and not VNNI
AMX: bool = AVX512 and VNNI and has("avx512bf16", *AMX_FEATURES)  # tile matmuls
BF16: bool = has("avx512bf16") if AVX512 else ARM64 and has("bf16")
NEON_DOT: bool = ARM64 and has("dotprod")
NEON_MATRIX: bool = NEON_DOT and has("i8mm")
NEON_BF16: bool = ARM64 and BF16
FMA: bool = ARM64 or has("fma")
HALF: bool = ARM64 or has("f16c") or AVX512
ZEN4: bool = CPU_NAME == "znver4"  # enables tuning measured on Zen 4; LLVM before 16 lacks the name

# f32 lanes of a native vector, and tokens of a matmul tile. Its accumulators fit into the
# register file together with the operands (32 zmm, 16 ymm, 32 NEON registers).
LANES: int = 16 if AVX512 else 8 if AVX2 else 4
TILE: int = 12 if AVX512 else 6 if AVX2 else 8

# `dot4_biased` expects its first operand stored with this value XORed into every byte.
I8_BIAS: int = 128 if VNNI else 0


CHECKED: bool = os.environ.get("LLAMA_PY_CHECK_BOUNDS", "") not in ("", "0")  # see bounds/


def feature_string() -> str:
    """Return the features in LLVM's format, sorted: `+avx2,-avx512f,...`."""
    return ",".join(f"{'+' if on else '-'}{name}" for name, on in sorted(FEATURES.items()))


def description() -> str:
    """Return the machine, its features in TELLING, and the target that kernels are compiled for.

    Example: `znver4 (ssse3, avx2, avx512bw) as avx2, 256-bit vectors`.
    """
    found = host_features()
    telling = ", ".join(name for name in TELLING if found.get(name, False))
    own = f"{host_cpu().name}{f' ({telling})' if telling else ''}"
    name = (usable(FEATURES) or [CPU_NAME])[-1]
    return f"{own} as {name}, {32 * LANES}-bit vectors"
