"""Test cases of ggml_py/ops/hyper_connections.py."""

from __future__ import annotations

from ggml_py import ops
from ggml_py.ops.hyper_connections import MIXES, STREAMS
from ggml_py.tensor import Tensor
from llama_py_tools.test_backend_ops.case import Leaves, case, uniform


@case("DSV4_HC_PRE", n_embd=[1, 31, 257], n_hc=[1, 4], n_tokens=[1, 17], v=[False])
@case("DSV4_HC_PRE", n_embd=[31], n_hc=[4], n_tokens=[17], v=[True], gated=[False, True])
@case("DSV4_HC_PRE", n_embd=[128], n_hc=[1, 2, 3, 5, 8, 65], n_tokens=[17], v=[False],
      gated=[False, True])
@case("DSV4_HC_PRE", n_embd=[128, 4096], n_hc=[4], n_tokens=[21, 257], v=[False],
      gated=[False, True])
@case("DSV4_HC_PRE", perf=True, n_embd=[4096], n_hc=[4], n_tokens=[512], v=[False])
def dsv4_hc_pre(
    new: Leaves, n_embd: int, n_hc: int, n_tokens: int, v: bool, gated: bool = False
) -> Tensor:
    ne = (n_embd, n_hc, n_tokens)
    if gated:
        make = new.part if v else new
        return ops.dsv4_hc_pre_gated(make(ne), make(ne, init=uniform(-4, 4)), 1 / n_hc)
    return ops.dsv4_hc_pre(new.part(ne) if v else new(ne), new((n_hc, n_tokens)))


@case("DSV4_HC_COMB", n_tokens=[1, 17, 257], n_iter=[1, 4, 8, 20])
@case("DSV4_HC_COMB", n_tokens=[0, 256, 336, 512, 513, 1024, 2048], n_iter=[20])
@case("DSV4_HC_COMB", n_tokens=[5], n_iter=[3], v=[True])
@case("DSV4_HC_COMB", perf=True, n_tokens=[512], n_iter=[20])
def dsv4_hc_comb(new: Leaves, n_tokens: int, n_iter: int, v: bool = False) -> Tensor:
    mixes = (new.part if v else new)((MIXES, n_tokens))
    return ops.dsv4_hc_comb(mixes, new((3,)), new((MIXES,)), 1e-6, n_iter)


@case("DSV4_HC_POST", n_embd=[1, 31, 128], n_tokens=[1, 17, 257], identity=[False, True])
@case("DSV4_HC_POST", n_embd=[2560, 4096], n_tokens=[21], identity=[False, True])
@case("DSV4_HC_POST", n_embd=[31], n_tokens=[17], identity=[False, True], v=[True])
@case("DSV4_HC_POST", n_embd=[31], n_tokens=[17], identity=[False], hc=[1, 2, 7])
@case("DSV4_HC_POST", n_embd=[31, 2560], n_tokens=[17, 21], identity=[False, True], gated=[True])
@case("DSV4_HC_POST", perf=True, n_embd=[4096], n_tokens=[512], identity=[False])
def dsv4_hc_post(
    new: Leaves, n_embd: int, n_tokens: int, identity: bool, v: bool = False, hc: int = STREAMS,
    gated: bool = False,
) -> Tensor:
    """Build DSV4_HC_POST; gated: the weights are the result of a sigmoid."""
    make = new.part if v else new
    x, residual = make((n_embd, n_tokens)), make((n_embd, hc, n_tokens))
    comb = None if identity else make((hc, hc, n_tokens))
    post = make((hc, n_tokens))
    if gated:
        post = ops.scale(ops.sigmoid(ops.scale(post, 1 / hc)), 2.0)
    return ops.dsv4_hc_post(x, residual, post, comb)
