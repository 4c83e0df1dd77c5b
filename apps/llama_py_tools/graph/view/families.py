"""Families and meanings of ops, for readers without knowledge of ggml."""

from __future__ import annotations

import inspect
from functools import cache

from ggml_py.opspec import OPS


@cache
def family(op: str) -> str:
    """Return the file of `ggml_py/ops` that declares the op; "views" for ops that only view a
    source."""
    if op not in OPS:
        return "other"
    return "views" if OPS[op].view else OPS[op].builder.__module__.rpartition(".")[2]


@cache
def meaning(op: str) -> str:
    """Return the first paragraph of the builder's docstring."""
    text = inspect.getdoc(OPS[op].builder) if op in OPS else ""
    return " ".join((text or "").split("\n\n")[0].split())
