"""Small ops of training graphs: outer products, a scalar added, labels counted."""

from __future__ import annotations

from ggml_py.ops.matrix import divides
from ggml_py.ops.registry import node, op, require, view_of
from ggml_py.tensor import Tensor
from ggml_py.types import F32, I64


@op("OUT_PROD")
def out_prod(a: Tensor, b: Tensor) -> Tensor:
    """Sum over k of a[:, k] times b[:, k] (ggml.c:ggml_out_prod). a [n, k, A2, A3],
    b [m, k, B2, B3] -> F32 [n, m, B2, B3]; A2 divides B2 and A3 divides B3
    """
    fits = a.ne[1] == b.ne[1] and divides(a.ne[2], b.ne[2]) and divides(a.ne[3], b.ne[3])
    require(fits, "out_prod: needs equal ne1, and a's ne2, ne3 must divide b's", a, b)
    require(not a.is_transposed(), "out_prod: a must not be transposed (use cont)", a)
    return node("OUT_PROD", F32, (a.ne[0], b.ne[0], *b.ne[2:]), a, b)


@op("ADD1", inplace=True)
def add1(a: Tensor, b: Tensor, inplace: bool = False) -> Tensor:
    """a + b[0] (ggml.c:ggml_add1)."""
    require(b.n_elements == 1, "add1: b must be a scalar", b)
    dense = a.nb[0] == a.type.type_size and a.nb[2:] == (a.nb[1] * a.ne[1], a.nb[2] * a.ne[2])
    require(dense, "add1: a must be dense but for the ends of rows", a)
    return view_of("ADD1", a, a, b) if inplace else node("ADD1", a.type, a.ne, a, b)


@op("COUNT_EQUAL")
def count_equal(a: Tensor, b: Tensor) -> Tensor:
    """How many elements of a and b are equal (ggml.c:ggml_count_equal). -> I64 [1]

    Of every row; ggml-cpu takes wrong ones where there are more than two dimensions.
    """
    require(a.same_shape(b), "count_equal: both must have the same shape", a, b)
    return node("COUNT_EQUAL", I64, (1,), a, b)
