"""Ops that move elements: copy, convert, concatenate, repeat, pad, write into a window."""

from __future__ import annotations

from ggml_py.ops.registry import node, op, require, view_of
from ggml_py.tensor import MAX_DIMS, Tensor, shape4
from ggml_py.types import F32, GGMLType


@op("CONT")
def cont(a: Tensor, *ne: int) -> Tensor:
    """A contiguous copy, with another shape if `ne` is given (ggml.c:ggml_cont, ggml_cont_4d)."""
    ne4 = shape4(ne) if ne else a.ne
    require(not ne or ne4[0] * ne4[1] * ne4[2] * ne4[3] == a.n_elements,
            f"cont: {list(ne)} has another number of elements", a)  # fmt: skip
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
    return view_of("CPY", b, a, b, name=name)


def cast(a: Tensor, type: GGMLType) -> Tensor:
    """A contiguous copy in another type (ggml.c:ggml_cast)."""
    t = node("CPY", type, a.ne).set_name(f"{a.name} (copy)")
    t.src = (a, t)  # as ggml: the destination of the copy is the result itself
    return t


@op("CONCAT", "dim:i")
def concat(a: Tensor, b: Tensor, dim: int) -> Tensor:
    """b after a along `dim`; all other dimensions equal (ggml.c:ggml_concat)."""
    require(0 <= dim < MAX_DIMS, f"concat: dim must be 0..3, got {dim}", a, b)
    require(a.type is b.type, "concat: both must have the same type", a, b)
    same = all(a.ne[i] == b.ne[i] for i in range(MAX_DIMS) if i != dim)
    require(same, f"concat: all dimensions but {dim} must be equal", a, b)
    ne = tuple(a.ne[i] + (b.ne[i] if i == dim else 0) for i in range(MAX_DIMS))
    return node("CONCAT", a.type, ne, a, b, params=(dim,))


def concat_inplace(a: Tensor, b: Tensor, result: Tensor, dim: int) -> Tensor:
    """As concat, written into `result`, which has the type and shape of the outcome; a may already
    be where it belongs (ik_llama.cpp ggml.c:ggml_concat_inplace). -> a view of result
    """
    t = concat(a, b, dim)
    fits = t.ne == result.ne and t.type is result.type
    require(fits, f"concat_inplace: result must be {t.type} {list(t.ne)}", a, b, result)
    return view_of("CONCAT", result, a, b, result, params=(dim,))


@op("REPEAT")
def repeat_4d(a: Tensor, ne0: int, ne1: int, ne2: int, ne3: int) -> Tensor:
    """Tile a to [ne0, ne1, ne2, ne3], each a multiple of a's (ggml.c:ggml_repeat_4d)."""
    ne = (ne0, ne1, ne2, ne3)
    t = node("REPEAT", a.type, ne, a)
    fits = min(ne) >= 0 and a.can_repeat_to(t)
    require(fits, f"repeat: {list(ne)} must be a multiple of the source in each dimension", a)
    return t


def repeat(a: Tensor, b: Tensor) -> Tensor:
    """Tile a to b's shape (ggml.c:ggml_repeat)."""
    return repeat_4d(a, *b.ne)


@op("PAD", "lp0:i rp0:i lp1:i rp1:i lp2:i rp2:i lp3:i rp3:i circular:i")
def pad_ext(
    a: Tensor, lp0: int, rp0: int, lp1: int, rp1: int, lp2: int, rp2: int, lp3: int, rp3: int
) -> Tensor:
    """a with zeros around it: lp_i before and rp_i after, in dimension i (ggml.c:ggml_pad_ext)."""
    pads = (lp0, rp0, lp1, rp1, lp2, rp2, lp3, rp3)
    require(min(pads) >= 0, f"pad: paddings must not be negative, got {pads}", a)
    ne = tuple(n + pads[2 * i] + pads[2 * i + 1] for i, n in enumerate(a.ne))
    return node("PAD", a.type, ne, a, params=(*pads, 0))


def pad(a: Tensor, p0: int, p1: int, p2: int, p3: int) -> Tensor:
    """a with p_i zeros after its end in dimension i (ggml.c:ggml_pad)."""
    return pad_ext(a, 0, p0, 0, p1, 0, p2, 0, p3)


def _window(
    op: str, a: Tensor, b: Tensor, nb1: int, nb2: int, nb3: int, offset: int, inplace: bool
) -> Tensor:
    require(b.n_elements <= a.n_elements, f"{op.lower()}: b must not be larger than a", a, b)
    params = (nb1, nb2, nb3, offset, int(inplace))
    if inplace:
        t = view_of(op, a, a, b, params=params)
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
        f"{op.lower()}: the window ends at byte {reach} of {t.nbytes}",
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
