"""The CPU that kernels are compiled for: name, features, and the widths that follow from them.

Needs llvmlite only, so that planning (scratch sizes, panel layouts) never imports Numba.
`NUMBA_CPU_NAME` and `NUMBA_CPU_FEATURES` (set both) choose another CPU, as they do for Numba.
"""

from __future__ import annotations

import os

import llvmlite.binding as llvm


def _cpu_name() -> str:
    name = os.environ.get("NUMBA_CPU_NAME", "")
    return name if name and name != "host" else llvm.get_host_cpu_name()


def _cpu_features() -> dict[str, bool]:
    """LLVM's feature names, True for those that code may use."""
    text = os.environ.get("NUMBA_CPU_FEATURES")
    if text is not None:
        return {word[1:]: word[0] == "+" for word in text.split(",") if word}
    if os.environ.get("NUMBA_CPU_NAME", "host") != "host":
        return {}
    return dict(llvm.get_host_cpu_features())


CPU_NAME: str = _cpu_name()
FEATURES: dict[str, bool] = _cpu_features()
TRIPLE: str = llvm.get_process_triple()
X86: bool = TRIPLE.startswith(("x86", "i686"))
ARM64: bool = TRIPLE.startswith(("aarch64", "arm64"))


def has(*features: str) -> bool:
    """Whether code may use all of these LLVM features."""
    return all(FEATURES.get(name, False) for name in features)


AVX512: bool = has("avx512f", "avx512bw", "avx512vl", "avx512dq")
AVX2: bool = has("avx2", "fma", "f16c")
VNNI: bool = AVX512 and has("avx512vnni")
BF16: bool = AVX512 and has("avx512bf16")
NEON_DOT: bool = ARM64 and has("dotprod")
FMA: bool = ARM64 or has("fma")
HALF: bool = ARM64 or has("f16c") or AVX512

# f32 lanes of a native vector, and the tokens of a matrix-multiplication tile (accumulators that
# fit the register file next to the operands: 32 zmm, 16 ymm, 32 NEON registers).
LANES: int = 16 if AVX512 else 8 if AVX2 else 4
TILE: int = 12 if AVX512 else 6 if AVX2 else 8

# `dot4_biased` wants its first operand stored with this value XORed into every byte.
I8_BIAS: int = 128 if VNNI else 0


def feature_string() -> str:
    """The features as LLVM takes them: `+avx2,-avx512f,...`, sorted."""
    return ",".join(f"{'+' if on else '-'}{name}" for name, on in sorted(FEATURES.items()))
