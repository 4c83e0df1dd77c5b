"""Quantized types, and how large an error rounding to them makes."""

from __future__ import annotations

from ggml_py.types import BY_NAME, GGMLType

STORED = [BY_NAME[n] for n in ("q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "iq4_nl")]
READABLE = [BY_NAME[n] for n in ("q4_K", "q5_K", "q6_K", "q2_K", "q3_K", "iq4_xs", "mxfp4")]
READABLE += [BY_NAME[n] for n in ("nvfp4", "q8_1", "q8_K", "tq1_0", "tq2_0", "q1_0", "q2_0")]
READABLE += [BY_NAME[n] for n in ("iq1_s", "iq1_m", "iq2_xxs", "iq2_xs", "iq2_s")]
READABLE += [BY_NAME[n] for n in ("iq3_xxs", "iq3_s")]
SEARCHED = ("q2_K", "q3_K", "q4_K", "q5_K", "q6_K", "iq4_xs", "mxfp4", "nvfp4")
SEARCHED += ("tq1_0", "tq2_0", "q1_0", "q2_0")


def quantization_bound(type: GGMLType, n: int) -> float:
    """The error if one of n values is rounded to the next level (test-backend-ops.cpp)."""
    if not type.is_quantized:
        return 1e-7
    step = {"q5_0": 1 / 16, "q5_1": 1 / 16, "q8_0": 1 / 64, "iq4_nl": 1 / 4}.get(type.name, 1 / 8)
    return step**2 / (0.25 * max(n, 1))
