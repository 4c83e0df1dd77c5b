"""The CPU backend's steps of several nodes, filled by the files of `fused/` as they are imported.

A launcher gets what fits its pattern and returns steps; see ggml_py/fusion.py.
"""

from __future__ import annotations

from collections.abc import Callable

from ggml_cpu.step import Step
from ggml_py.fusion import Fusions
from ggml_py.pattern import Match
from ggml_py.types import F32

FUSIONS: Fusions[Step] = Fusions()
fuse = FUSIONS.fuse


def f32_rows(*names: str) -> Callable[[Match], str]:
    """A `when`: operands of F32 whose rows are dense."""

    def when(m: Match) -> str:
        other = [m[name] for name in names if m[name].type is not F32 or m[name].nb[0] != 4]
        return f"needs dense rows of f32; got {other[0]}" if other else ""

    return when
