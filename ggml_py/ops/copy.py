"""Copies: of another type, of another layout, into a window."""

from __future__ import annotations

import math

from ggml_py.ops.registry import node, op, refuse, require, view_result
from ggml_py.tensor import Tensor, shape4
from ggml_py.types import F32, GGMLType


@op("CONT")
def cont(a: Tensor, *ne: int) -> Tensor:
    """Copy to contiguous memory, optionally with shape `ne` (ggml.c:ggml_cont, ggml_cont_4d)."""
    ne4 = shape4(ne) if ne else a.ne
    if min(ne4) < 0:
        refuse(f"cont: {list(ne)} must not be negative", a)
    if math.prod(ne4) != a.n_elements:
        refuse(f"cont: {list(ne)} must have the same number of elements as the source", a)
    return node("CONT", a.type, ne4, a).set_name(f"{a.name} (cont)")


@op("DUP")
def dup(a: Tensor) -> Tensor:
    """A contiguous copy of the same shape (ggml.c:ggml_dup)."""
    return node("DUP", a.type, a.ne, a)


@op("CPY")
def cpy(a: Tensor, b: Tensor) -> Tensor:
    """Write a's elements, in order, into b's memory, converting to b's type; shapes may differ
    (ggml.c:ggml_cpy).
    """
    require(a.n_elements == b.n_elements, "cpy: both must have the same number of elements", a, b)
    name = f"{b.name} (copy of {a.name})" if b.name else f"{a.name} (copy)"
    return view_result("CPY", b, a, b, name=name)


def cast(a: Tensor, type: GGMLType) -> Tensor:
    """A contiguous copy in another type (ggml.c:ggml_cast)."""
    t = node("CPY", type, a.ne).set_name(f"{a.name} (copy)")
    t.src = (a, t)  # as ggml: the destination of the copy is the result itself
    return t


def _window(
    op: str, a: Tensor, b: Tensor, nb1: int, nb2: int, nb3: int, offset: int, inplace: bool
) -> Tensor:
    require(b.n_elements <= a.n_elements, f"{op.lower()}: b must not be larger than a", a, b)
    params = (nb1, nb2, nb3, offset, int(inplace))
    if inplace:
        t = view_result(op, a, a, b, params=params)
    else:
        t = node(op, a.type, a.ne, a, b, params=params)
    window = (t.nb[0], nb1, nb2, nb3)
    require(
        min(*window, offset) >= 0,
        f"{op.lower()}: strides {window} and offset {offset} must not be negative",
        a,
        b,
    )
    reach = offset + t.type.type_size + sum((n - 1) * s for n, s in zip(b.ne, window, strict=True))
    require(
        b.is_empty() or reach <= t.nbytes,
        f"{op.lower()}: the window ends at byte {reach}, but the tensor has {t.nbytes}",
        a,
        b,
    )
    return t


@op("SET", "nb1:i nb2:i nb3:i offset:i inplace:i")
def set_(
    a: Tensor, b: Tensor, nb1: int, nb2: int, nb3: int, offset: int, inplace: bool = False
) -> Tensor:
    """a with b written into the window of byte strides nb1..nb3 at byte `offset`
    (ggml.c:ggml_set).
    """
    require(a.type is b.type, "set: both must have the same type", a, b)
    return _window("SET", a, b, nb1, nb2, nb3, offset, inplace)


@op("ACC", "nb1:i nb2:i nb3:i offset:i inplace:i")
def acc(
    a: Tensor, b: Tensor, nb1: int, nb2: int, nb3: int, offset: int, inplace: bool = False
) -> Tensor:
    """a with b added into the window of byte strides nb1..nb3 at byte `offset`
    (ggml.c:ggml_acc).
    """
    require(a.is_contiguous(), "acc: a must be contiguous", a, b)
    require(a.type is F32 and b.type is F32, "acc: both must be f32", a, b)
    return _window("ACC", a, b, nb1, nb2, nb3, offset, inplace)
