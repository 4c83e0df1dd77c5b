"""Cases: one or more files per family of ops in ggml_py/ops. New files are found automatically."""

from __future__ import annotations

import sys
from functools import cache

from ggml_py.backend.kernels import import_families
from llama_py_tools.test_backend_ops.case import CASES, Case
from llama_py_tools.test_backend_ops.gaps import cases_with_gaps


@cache
def all_cases() -> tuple[Case, ...]:
    """Return every case of every file once, plus some with gaps, in the order of the ops' names."""
    import_families(sys.modules[__name__])
    unique = {(str(c), c.fused, c.perf): c for c in sorted(CASES, key=lambda c: c.op)}
    cases = [*unique.values(), *cases_with_gaps(unique.values())]
    return tuple(sorted(cases, key=lambda c: c.op))
