"""Quantized types, and the error of rounding to each type."""

from __future__ import annotations

from ggml_py.types import BY_NAME, TYPES, GGMLType
from ggml_ref.quants import quantizer, quantizes_as_ggml

QUANTIZED = [t for t in TYPES.values() if t.is_quantized and quantizer(t)]
STORED = [BY_NAME[n] for n in ("q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "iq4_nl")]  # cache types
READABLE = [t for t in QUANTIZED if t not in STORED]
PARTNERS = [BY_NAME["q8_1"], BY_NAME["q8_K"]]  # types only for activations in ggml
WRITABLE = [t for t in QUANTIZED if t not in PARTNERS and quantizes_as_ggml(t)]


def quantization_bound(type: GGMLType, n: int) -> float:
    """Return the error of rounding one of n values to the next level (test-backend-ops.cpp)."""
    if not type.is_quantized:
        return 1e-7
    step = {"q5_0": 1 / 16, "q5_1": 1 / 16, "q8_0": 1 / 64, "iq4_nl": 1 / 4}.get(type.name, 1 / 8)
    return step**2 / (0.25 * max(n, 1))
