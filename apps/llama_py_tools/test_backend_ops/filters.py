"""Selection of the cases by -o and -p."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from llama_py_tools.test_backend_ops.case import Case


def split_filter(text: str) -> list[str]:
    """Split a text at commas outside parentheses."""
    return [part.strip() for part in re.split(r",(?![^(]*\))", text) if part.strip()]


def matches(entry: str, case: Case) -> bool:
    """Return True for an exact op name, a printed case, or a regex found in the op's name."""
    op, bracket, _ = entry.partition("(")
    if bracket and entry.endswith(")") and op.isidentifier():
        return op == case.op and entry == str(case)
    if re.fullmatch(r"[A-Z0-9_]+", entry):
        return entry == case.op
    return re.search(entry, case.op) is not None


def select(ops: str | None, params: str | None, perf: bool, file: str = "") -> list[Case]:
    """Return the cases that pass both filters, or a file's cases; GGMLError if no case is left."""
    from ggml_py.errors import GGMLError
    from llama_py_tools.test_backend_ops.cases import all_cases
    from llama_py_tools.test_backend_ops.op_file import read_cases

    chosen = read_cases(file) if file else [c for c in all_cases() if c.perf == perf]
    if ops is not None:
        entries = split_filter(ops)
        chosen = [c for c in chosen if any(matches(e, c) for e in entries)]
    if params is not None:
        pattern = re.compile(params)
        chosen = [c for c in chosen if pattern.search(c.vars)]
    if not chosen:
        raise GGMLError("no case matches the filters; --show-coverage lists the ops with cases")
    return chosen
