"""Formulas of nodes: an op's meaning with the names of its arguments."""

from __future__ import annotations

import inspect
import re
from functools import cache
from typing import Any

from ggml_py.opspec import OPS
from ggml_py.tensor import Tensor
from llama_py_tools.graph.read.record import MadeTensor
from llama_py_tools.graph.view.families import meaning

_ORIGIN = re.compile(r" \((?:ik_llama\.cpp )?ggml\.c:[^)]*\)")
_WORD = re.compile(r"`?\b([A-Za-z_]\w*)\b`?")


def formula(made: MadeTensor) -> str:
    """Return the first sentence of the builder's docstring, with sources and numbers filled in.

    Sources that the sentence does not name follow in brackets.
    """
    t, used = made.tensor, set[str]()
    values = {key: _show_value(v) for key, v in _arguments(made).items()}
    tensors = [s.name for s in t.src if s is not None]
    if len(tensors) == 1:
        values.setdefault("x", tensors[0])

    def fill(found: re.Match[str]) -> str:
        value = values.get(found[1]) or found[0]
        used.add(value)
        return value

    text = _WORD.sub(fill, _sentence(t.op))
    rest = [name for name in dict.fromkeys(tensors) if name not in used]
    return f"{text} [{', '.join(rest)}]" if rest else text


def _arguments(made: MadeTensor) -> dict[str, Any]:
    """Return the builder's arguments; sources in order if another function builds the op."""
    if made.arguments:
        return made.arguments
    t = made.tensor
    names = inspect.signature(OPS[t.op].builder).parameters if t.op in OPS else ()
    return dict(zip(names, t.src, strict=False))


@cache
def _sentence(op: str) -> str:
    text = _ORIGIN.sub("", meaning(op))
    return re.split(r"[.:;] |\.$", text)[0] or op.lower()


def _show_value(value: Any) -> str:
    if isinstance(value, Tensor):
        return value.name
    if isinstance(value, bool) or not isinstance(value, int | float):
        return ""
    return f"{value:g}" if isinstance(value, float) else str(value)
