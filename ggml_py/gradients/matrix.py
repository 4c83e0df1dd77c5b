"""Gradients of matrix ops (ggml_py/ops/matrix.py)."""

from __future__ import annotations

from ggml_py.gradients._declare import gradient, source, sum_repeats
from ggml_py.ops import out_prod, reshape, transpose
from ggml_py.tensor import Tensor


@gradient("MUL_MAT")
def mul_mat_a(t: Tensor, grad: Tensor) -> Tensor:
    """Return the gradient of a: b [k, m, B2, B3] and grad [n, m, B2, B3] -> [k, n, A2, A3]. It is
    summed over consecutive matrices of b that share a matrix of a.
    """
    a, b = source(t, 0), source(t, 1)
    res = out_prod(b, grad)
    n = a.ne[0] * a.ne[1]
    for dim in (2, 3):
        one = (n, 1, a.ne[dim], res.n_elements // (n * b.ne[dim]))
        if a.ne[dim] != b.ne[dim]:
            whole = reshape(res, n, b.ne[dim] // a.ne[dim], *one[2:])
            res = sum_repeats(whole, Tensor(res.type, one))
        n *= a.ne[dim]
    return reshape(res, *a.ne)


@gradient("MUL_MAT", 1)
def mul_mat_b(t: Tensor, grad: Tensor) -> Tensor:
    return out_prod(source(t, 0), transpose(grad))
