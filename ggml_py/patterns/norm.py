"""Patterns of RMS_NORM and the nodes after it."""

from __future__ import annotations

from ggml_py.fusion.pattern import Match, Pattern

RMS_NORM_MUL = Pattern("""
    norm = RMS_NORM(x)
    product = MUL(norm, weight)
""")


def no_bias(m: Match) -> str:
    bias = m["product"].param("bias")
    return f"needs no bias; got {bias}" if bias else ""


RMS_NORM_SCALE = Pattern(
    """
    norm = RMS_NORM(x)
    product = SCALE(norm)
    """,
    no_bias,
)
