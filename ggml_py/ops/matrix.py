"""Matrix products, triangular systems, diagonal matrices."""

from __future__ import annotations

from ggml_py.ops.registry import node, op, require
from ggml_py.ops.traffic import all_sources, dense_bytes
from ggml_py.tensor import Tensor
from ggml_py.types import F32, I32

PREC = {"default": 0, "f32": 10}
HADAMARD = 1  # ggml.h:GGML_HINT_SRC0_IS_HADAMARD


def _flops(t: Tensor) -> float:
    return 2.0 * t.n_elements * t.source(0).ne[0]


def _read_bytes(t: Tensor) -> int:
    """Return the bytes read, with at most one read per matrix and per chosen id."""
    matrices, ids = t.source(0), t.source(2)
    share = min(1.0, ids.n_elements / max(matrices.ne[2], 1))
    return all_sources(t) - round((1 - share) * dense_bytes(matrices))


@op("MUL_MAT", "prec:i hint:i 4x src_prec:i", batch=(1,), flops=_flops, rounds=(0, 1))
def mul_mat(a: Tensor, b: Tensor, prec: str = "default", b_prec: str = "default") -> Tensor:
    """b times the transpose of a (ggml.c:ggml_mul_mat, ggml_prec_set_src). a [k, n, A2, A3],
    b [k, m, B2, B3] -> F32 [n, m, B2, B3]

    A2 divides B2 and A3 divides B3. b is rounded to the activation type of the weight type
    (REFERENCE: ggml-cpu's vec_dot_type).
    b_prec  "f32": b has values that half precision cannot represent
    """
    fits = a.ne[0] == b.ne[0] and divides(a.ne[2], b.ne[2]) and divides(a.ne[3], b.ne[3])
    require(fits, "mul_mat: a and b must have equal ne0, and a's ne2, ne3 must divide b's", a, b)
    require(not a.is_transposed(), "mul_mat: a must not be transposed (use cont)", a)
    return node("MUL_MAT", F32, (a.ne[1], *b.ne[1:]), a, b, params=(PREC[prec], 0, PREC[b_prec]))


def mul_mat_hadamard(a: Tensor, b: Tensor) -> Tensor:
    """Multiply b by the Hadamard matrix a [n, n] / sqrt(n) (ggml.c:ggml_mul_mat_set_hint).

    a has the natural order: a[i, j] < 0 if i & j has an odd number of set bits.
    """
    t = mul_mat(a, b)
    square = a.ne == (a.ne[0], a.ne[0], 1, 1) and a.type is F32
    require(square, "mul_mat_hadamard: a must be a square f32 matrix", a)
    t.params = (PREC["default"], HADAMARD, 0)
    return t


@op(
    "MUL_MAT_ID",
    "prec:i hint:i 4x src_prec:i first:i of:i",
    batch=(2,),
    reads=_read_bytes,
    flops=_flops,
    rounds=(0, 1),
)
def mul_mat_id(
    as_: Tensor, b: Tensor, ids: Tensor, b_prec: str = "default", first: int = 0, of: int = 0
) -> Tensor:
    """Each token times its own matrices (ggml.c:ggml_mul_mat_id, ggml_prec_set_src).

    as_ [k, n, n_expert], b [k, 1 or n_used, T], ids I32 [n_used, T] -> F32 [n, n_used, T]
    b_prec  "f32": b has values that half precision cannot represent
    first   number of the first matrix in as_; products with matrices outside as_ are zero
    of      total number of matrices; 0: as_ has all matrices, the only choice in ggml
    """
    require(not as_.is_transposed(), "mul_mat_id: the matrices must not be transposed", as_)
    require(as_.ne[2] > 0 or ids.is_empty(), "mul_mat_id: at least one matrix is needed", as_, ids)
    require(as_.ne[3] == 1 and b.ne[3] == 1, "mul_mat_id: matrices and b must be 3-d", as_, b)
    require(
        ids.ne[2] == 1 and ids.ne[3] == 1 and ids.type is I32,
        "mul_mat_id: ids must be a 2-d i32",
        ids,
    )
    require(as_.ne[0] == b.ne[0], "mul_mat_id: matrices and b must have equal ne0", as_, b)
    require(ids.ne[1] == b.ne[2], "mul_mat_id: ids must have a column per token of b", b, ids)
    require(divides(b.ne[1], ids.ne[0]), "mul_mat_id: b's ne1 must divide ids' ne0", b, ids)
    require(
        first >= 0 and (first + as_.ne[2] <= of if of else first == 0),
        f"mul_mat_id: the matrices from number {first} on must be within the {of} of the weight",
        as_,
    )
    ne = as_.ne[1], ids.ne[0], b.ne[2]
    params = (0, 0, PREC[b_prec], first, of)
    return node("MUL_MAT_ID", F32, ne, as_, b, ids, params=params)


@op("OUT_PROD", flops=lambda t: 2.0 * t.n_elements * t.source(0).ne[1], rounds=(0, 1))
def out_prod(a: Tensor, b: Tensor) -> Tensor:
    """Sum over k of a[:, k] times b[:, k] (ggml.c:ggml_out_prod). a [n, k, A2, A3],
    b [m, k, B2, B3] -> F32 [n, m, B2, B3]; A2 divides B2 and A3 divides B3
    """
    fits = a.ne[1] == b.ne[1] and divides(a.ne[2], b.ne[2]) and divides(a.ne[3], b.ne[3])
    require(fits, "out_prod: needs equal ne1, and a's ne2, ne3 must divide b's", a, b)
    require(not a.is_transposed(), "out_prod: a must not be transposed (use cont)", a)
    return node("OUT_PROD", F32, (a.ne[0], b.ne[0], *b.ne[2:]), a, b)


@op("SOLVE_TRI")
def solve_tri(a: Tensor, b: Tensor) -> Tensor:
    """X with A X = B, A lower triangular (ggml.c:ggml_solve_tri). a [n, n, B2, B3], b [k, n, B2,
    B3] -> like b
    """
    require(a.type is F32 and b.type is F32, "solve_tri: both must be f32", a, b)
    require(a.ne[0] == a.ne[1], "solve_tri: A must be square", a)
    require(a.ne[1:] == b.ne[1:], "solve_tri: A and B must have the same rows and batch", a, b)
    require(a.is_contiguous() and b.is_contiguous(), "solve_tri: both must be contiguous", a, b)
    return node("SOLVE_TRI", F32, b.ne, a, b)


@op("DIAG")
def diag(a: Tensor) -> Tensor:
    """Square matrices with a's rows on the diagonal (ggml.c:ggml_diag). a [n, 1, B2, B3] -> [n, n,
    B2, B3]
    """
    require(a.ne[1] == 1, "diag: a must have one row per matrix", a)
    return node("DIAG", a.type, (a.ne[0], a.ne[0], *a.ne[2:]), a)


def divides(n: int, m: int) -> bool:
    return n != 0 and m % n == 0
