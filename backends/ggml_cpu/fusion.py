"""The table of steps of several nodes; see ggml_py/fusion/fusion.py. `fused/` has them."""

from __future__ import annotations

from ggml_cpu.step import Step
from ggml_py.fusion import Fusions

FUSIONS: Fusions[Step] = Fusions()
fuse = FUSIONS.fuse
