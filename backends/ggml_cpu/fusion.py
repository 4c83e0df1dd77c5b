"""Several nodes run by one kernel: a rewrite of the steps, never of the graph that users see.

Each file of `fused/` declares rewriters with `@rewrite(op)`: a function that gets the window of
steps and the index of one that runs `op`, and merges it with its neighbours if they fit.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Sequence
from functools import cache
from importlib import import_module

from ggml_cpu.step import Step
from ggml_cpu.window import REWRITERS, Rewriter, Window


@cache
def rewriters() -> tuple[tuple[str, Rewriter], ...]:
    import ggml_cpu.fused

    for module in pkgutil.iter_modules(ggml_cpu.fused.__path__):
        import_module(f"ggml_cpu.fused.{module.name}")
    return tuple(REWRITERS)


def fuse(steps: Sequence[Step]) -> list[Step]:
    """Steps with known neighbours merged."""
    window = Window(steps)
    for op, function in rewriters():
        for i in range(len(window.steps)):
            if window.op(i) == op:
                function(window, i)
    return [s for s in window.steps if s is not None]
