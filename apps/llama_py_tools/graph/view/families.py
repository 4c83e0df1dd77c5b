"""What an op is about, for those who do not know it."""

from __future__ import annotations

import inspect
from functools import cache

from ggml_py.opspec import OPS


@cache
def family(op: str) -> str:
    """The file of `ggml_py/ops` that declares it; "views" for what only looks at its source."""
    if op not in OPS:
        return "other"
    return "views" if OPS[op].view else OPS[op].builder.__module__.rpartition(".")[2]


@cache
def meaning(op: str) -> str:
    """The first paragraph of its builder's documentation."""
    text = inspect.getdoc(OPS[op].builder) if op in OPS else ""
    return " ".join((text or "").split("\n\n")[0].split())
