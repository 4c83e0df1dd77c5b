"""Helpers shared by all kernels: element types, row addresses, splitting of large rows."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import NamedTuple

from ggml_cpu import vocabulary as v
from ggml_cpu.kernel import Function, fn
from ggml_cpu.target import LANES
from ggml_py.tensor import Tensor

CHUNK = 4096  # maximum elements per piece of a row; threads divide the pieces


class Element(NamedTuple):
    """Load and store functions of one float type, which convert to and from f32.

    `load` and `store` access LANES elements, `load_n` and `store_n` the first n elements, `ld` and
    `st` one element. `size`: bytes per element.
    """

    name: str
    size: int
    load: Function
    load_n: Function
    store: Function
    store_n: Function
    ld: Function
    st: Function


@fn
def ld_f32(a):
    return v.ld_f32(a)


@fn
def st_f32(a, x):
    v.st_f32(a, x)


@fn
def ld_f16(a):
    return v.ld_f16(a)


@fn
def st_f16(a, x):
    v.st_f16(a, x)


@fn
def ld_bf16(a):
    return v.ld_bf16(a)


@fn
def st_bf16(a, x):
    v.st_bf16(a, x)


@fn
def load_f32(a):
    return v.f32_load(a)


@fn
def load_n_f32(a, n):
    return v.f32_load_n(a, n)


@fn
def store_f32(a, x):
    v.store(a, x)


@fn
def store_n_f32(a, x, n):
    v.store_n(a, x, n)


@fn
def load_f16(a):
    return v.f16_load(a)


@fn
def load_n_f16(a, n):
    return v.f16_load_n(a, n)


@fn
def store_f16(a, x):
    v.f16_store(a, x)


@fn
def store_n_f16(a, x, n):
    v.f16_store_n(a, x, n)


@fn
def load_bf16(a):
    return v.bf16_load(a)


@fn
def load_n_bf16(a, n):
    return v.bf16_load_n(a, n)


@fn
def store_bf16(a, x):
    v.bf16_store(a, x)


@fn
def store_n_bf16(a, x, n):
    v.bf16_store_n(a, x, n)


F32 = Element("f32", 4, load_f32, load_n_f32, store_f32, store_n_f32, ld_f32, st_f32)
F16 = Element("f16", 2, load_f16, load_n_f16, store_f16, store_n_f16, ld_f16, st_f16)
BF16 = Element("bf16", 2, load_bf16, load_n_bf16, store_bf16, store_n_bf16, ld_bf16, st_bf16)
FLOATS = (F32, F16, BF16)
FLOAT_NAMES = tuple(e.name for e in FLOATS)


def float_kind(t: Tensor) -> int:
    """Return the index of the tensor's type in FLOATS."""
    return FLOAT_NAMES.index(t.type.name)


@fn
def ld_float(a, kind):
    """Load one element of type FLOATS[kind] as f32."""
    if kind == 0:
        return v.ld_f32(a)
    if kind == 1:
        return v.ld_f16(a)
    return v.ld_bf16(a)


@fn
def pad_to_lanes(n: int) -> int:
    """Return n rounded up to a multiple of LANES."""
    return (n + LANES - 1) // LANES * LANES


@fn
def n_rows(p, k):
    """Return the number of rows of tensor k."""
    return v.ne(p, k, 1) * v.ne(p, k, 2) * v.ne(p, k, 3)


@fn
def row_address(p, k, r):
    """Return the address of row r of tensor k; r counts through dimensions 1, 2, 3."""
    n1 = v.ne(p, k, 1)
    n2 = v.ne(p, k, 2)
    i1 = r % n1
    i2 = r // n1 % n2
    i3 = r // (n1 * n2)
    return v.data(p, k) + i1 * v.nb(p, k, 1) + i2 * v.nb(p, k, 2) + i3 * v.nb(p, k, 3)


@fn
def run_stop(p, k, r, stop):
    """Return the end of the rows from r on that are nb[1] apart: of dimension 1, or `stop`."""
    n1 = v.ne(p, k, 1)
    return min(stop, r - r % n1 + n1)


@fn
def row_repeated(p, k, r):
    """Return the address of the row of tensor k that broadcasts to row r of dst."""
    n1 = v.ne(p, 0, 1)
    n2 = v.ne(p, 0, 2)
    i1 = r % n1 % v.ne(p, k, 1)
    i2 = r // n1 % n2 % v.ne(p, k, 2)
    i3 = r // (n1 * n2) % v.ne(p, k, 3)
    return v.data(p, k) + i1 * v.nb(p, k, 1) + i2 * v.nb(p, k, 2) + i3 * v.nb(p, k, 3)


@fn
def gapless(p, k, size):
    """Return True if tensor k, with elements of `size` bytes, is contiguous."""
    n0, n1, n2 = v.ne(p, k, 0), v.ne(p, k, 1), v.ne(p, k, 2)
    plane = n0 * n1 * size
    return v.nb(p, k, 1) == n0 * size and v.nb(p, k, 2) == plane and v.nb(p, k, 3) == plane * n2


@fn
def contiguous_runs(p, size):
    """Return (elements per run, number of runs); a run is contiguous in both dst and src0.

    dst and src0 have the same shape. A run is the whole tensor if possible, else one row.
    """
    n, rows = v.ne(p, 0, 0), n_rows(p, 0)
    if gapless(p, 0, size) and gapless(p, 1, size):
        return n * rows, 1
    return n, rows


@fn
def count_chunks(n):
    """Return the number of pieces of at most CHUNK elements in a row of n elements."""
    return (n + CHUNK - 1) // CHUNK


@cache
def types_are(*names: str | tuple[str, ...]) -> Callable[[Tensor], str]:
    """Return a `when` that checks the types of dst, src0, src1, ...; a tuple lists alternatives."""
    allowed = [(name,) if isinstance(name, str) else name for name in names]

    def check(node: Tensor) -> str:
        found = [node.type.name, *(s.type.name for s in node.src if s is not None)]
        pairs = zip(found, allowed, strict=False)
        if len(found) < len(allowed) or any(name not in some for name, some in pairs):
            wanted = ", ".join(map(" or ".join, allowed))
            return f"needs types {wanted}; got {', '.join(found)}"
        return ""

    return check


def dense_rows(node: Tensor) -> str:
    """Accept nodes if the rows of dst and of all sources are contiguous."""
    for t in (node, *node.src):
        if t is not None and t.nb[0] != t.type.type_size and t.ne[0] > 1:
            return f"needs dense rows; {t} has elements {t.nb[0]} bytes apart"
    return ""


@cache
def require_all(*conditions: Callable[[Tensor], str]) -> Callable[[Tensor], str]:
    """Return a `when` that accepts a node if all conditions do, else gives the first reason."""

    def check(node: Tensor) -> str:
        return next((why for c in conditions if (why := c(node))), "")

    return check
