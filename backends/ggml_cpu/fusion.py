"""The table of fused kernels, declared in `fused/`; see ggml_py/fusion/fusion.py."""

from __future__ import annotations

from ggml_cpu.step import Step
from ggml_py.fusion import Fusions

FUSIONS: Fusions[Step] = Fusions()
fuse = FUSIONS.fuse
