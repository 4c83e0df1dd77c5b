"""Conditions on nodes; each returns "" or a sentence `needs A; got X`."""

from __future__ import annotations

from collections.abc import Iterable

from ggml_opencl.kernels import find_types, quantized_types
from ggml_py.backend.kernels import When
from ggml_py.tensor import Tensor

FLOATS = ("f32", "f16")
READABLE = ("f32", "f16", "bf16")


def all_conditions(*conditions: When) -> When:
    """Return a condition that reports the first reason of all conditions."""

    def check(node: Tensor) -> str:
        return next((reason for when in conditions if (reason := when(node))), "")

    return check


def operand(node: Tensor, index: int) -> Tensor | None:
    """Return a source, or the result for index -1."""
    return node if index < 0 else node.optional(index)


def needs_type(index: int, *names: str) -> When:
    """Return a condition: a source (-1: the result) is absent or has a given type."""

    def check(node: Tensor) -> str:
        t = operand(node, index)
        if t is None or t.type.name in names:
            return ""
        what = "a result" if index < 0 else f"a source {index}"
        return f"needs {what} of {', '.join(names)}; got {t}"

    return check


def all_typed(indices: Iterable[int], *names: str) -> When:
    return all_conditions(*(needs_type(i, *names) for i in indices))


def dense_rows(*indices: int) -> When:
    def check(node: Tensor) -> str:
        for i in indices:
            t = operand(node, i)
            if t is not None and not t.has_contiguous_rows():
                return f"needs dense rows; got {t} with elements {t.nb[0]} bytes apart"
        return ""

    return check


def float_rows(t: Tensor) -> str:
    """Return why the tensor is not dense rows of floats, or ""."""
    plain = t.type.name in READABLE and t.has_contiguous_rows()
    return "" if plain else f"needs dense rows of {', '.join(READABLE)}; got {t}"


def quantizable(node: Tensor) -> str:
    """Return why kernels cannot make the result's quantized type, or ""."""
    return needs_type(-1, *find_types("quantize"))(node)


def needs_quantized(index: int) -> When:
    """Return a condition: a source is of a quantized type that kernels can read."""

    def check(node: Tensor) -> str:
        t = node.source(index)
        if t.type.name in quantized_types():
            return ""
        known = ", ".join(sorted(quantized_types()))
        return f"needs a source {index} of {known}; got {t}"

    return check
