"""Views: tensors that share the bytes of another tensor, with another shape or strides."""

from __future__ import annotations

import math

from ggml_py.ops.registry import op, refuse, require, whole_blocks
from ggml_py.tensor import MAX_DIMS, Shape, Tensor, contiguous_strides, shape4


def _view(a: Tensor, ne: tuple[int, ...], nb: Shape, offset: int) -> Tensor:
    t = Tensor(a.type, shape4(ne), "VIEW", (a,), (offset,), f"{a.name} (view)", nb, a, offset)
    root = a if a.view_src is None else a.view_src
    end = t.view_offs + t.nbytes
    if min(*t.ne, *nb, offset) < 0:
        what = f"{list(t.ne)}, strides {list(nb)} and byte offset {offset}"
        refuse(f"view: {what} must not be negative", a)
    if end > root.nbytes and not t.is_empty():
        refuse(f"view: {list(t.ne)} ends at byte {end}, but the source has {root.nbytes}", a)
    whole_blocks(t)
    return t


def view_1d(a: Tensor, ne0: int, offset: int) -> Tensor:
    """ne0 elements from byte `offset`. -> [ne0]"""
    return _view(a, (ne0,), contiguous_strides(a.type, shape4((ne0,))), offset)


def view_2d(a: Tensor, ne0: int, ne1: int, nb1: int, offset: int) -> Tensor:
    """Rows nb1 bytes apart. -> [ne0, ne1]"""
    return _view(a, (ne0, ne1), (a.type.type_size, nb1, nb1 * ne1, nb1 * ne1), offset)


def view_3d(a: Tensor, ne0: int, ne1: int, ne2: int, nb1: int, nb2: int, offset: int) -> Tensor:
    """-> [ne0, ne1, ne2] with byte strides nb1, nb2"""
    return _view(a, (ne0, ne1, ne2), (a.type.type_size, nb1, nb2, nb2 * ne2), offset)


@op("VIEW", "offset:q", view=True)
def view_4d(
    a: Tensor, ne0: int, ne1: int, ne2: int, ne3: int, nb1: int, nb2: int, nb3: int, offset: int
) -> Tensor:
    """A window of a with its own shape and byte strides (ggml.c:ggml_view_4d). -> [ne0, ne1, ne2,
    ne3]
    """
    return _view(a, (ne0, ne1, ne2, ne3), (a.type.type_size, nb1, nb2, nb3), offset)


def view(
    a: Tensor, ne: tuple[int, ...], strides: tuple[int, ...] | None = None, offset: int = 0
) -> Tensor:
    """A window in element units: `ne` elements, `strides` of dimensions 1.. in elements (None: as
    ggml_view_nd with a's own strides), `offset` in elements of dimension 0."""
    row = a.type.row_size
    nb = a.nb[1 : len(ne)] if strides is None else tuple(row(s) for s in strides)
    if len(ne) == 1:
        return view_1d(a, ne[0], row(offset))
    require(
        len(nb) == len(ne) - 1,
        f"view: {len(ne)} dimensions need {len(ne) - 1} strides, got {len(nb)}",
        a,
    )
    last = nb[-1] * ne[-1]
    full: Shape = (a.type.type_size, *nb, *(last,) * (3 - len(nb)))  # type: ignore[assignment]
    return _view(a, ne, full, row(offset))


@op("RESHAPE", view=True)
def reshape(a: Tensor, *ne: int) -> Tensor:
    """The same elements with another shape; a must be contiguous (ggml.c:ggml_reshape_4d)."""
    ne4 = shape4(ne)
    require(a.is_contiguous(), "reshape: the source must be contiguous (use cont)", a)
    if min(ne4) < 0:
        refuse(f"reshape: {list(ne)} must not be negative", a)
    if math.prod(ne4) != a.n_elements:
        refuse(f"reshape: {list(ne)} must have the same number of elements as the source", a)
    t = Tensor(a.type, ne4, "RESHAPE", (a,), (), f"{a.name} (reshaped)", None, a, 0)
    whole_blocks(t)
    return t


@op("PERMUTE", "axis0:i axis1:i axis2:i axis3:i", view=True)
def permute(a: Tensor, axis0: int, axis1: int, axis2: int, axis3: int) -> Tensor:
    """Dimension i of a becomes dimension axis_i (ggml.c:ggml_permute)."""
    axes = (axis0, axis1, axis2, axis3)
    if sorted(axes) != [0, 1, 2, 3]:
        refuse(f"permute: axes must be a permutation of 0..3, got {axes}", a)
    order = [axes.index(i) for i in range(MAX_DIMS)]
    ne = tuple([a.ne[i] for i in order])
    nb: Shape = tuple([a.nb[i] for i in order])  # type: ignore[assignment]
    return Tensor(a.type, ne, "PERMUTE", (a,), axes, f"{a.name} (permuted)", nb, a, 0)


@op("TRANSPOSE", view=True)
def transpose(a: Tensor) -> Tensor:
    """Swap dimensions 0 and 1 (ggml.c:ggml_transpose). [n, m, ...] -> [m, n, ...]"""
    n0, n1, n2, n3 = a.ne
    b0, b1, b2, b3 = a.nb
    return Tensor(
        a.type,
        (n1, n0, n2, n3),
        "TRANSPOSE",
        (a,),
        (),
        f"{a.name} (transposed)",
        (b1, b0, b2, b3),
        a,
        0,
    )
