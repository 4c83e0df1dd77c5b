"""Small graphs whose nodes a backend may run as one kernel: only the last value is compared.

The names are not ops; they say what is joined.
"""

from __future__ import annotations

from ggml_py import ops
from ggml_py.tensor import Tensor
from ggml_py.types import BY_NAME, F16, F32, I32, I64, GGMLType
from llama_py_tools.test_backend_ops.case import Leaves, case, integers, uniform
from llama_py_tools.test_backend_ops.cases.rows import row_numbers

Shape = tuple[int, ...]


@case("RMS_NORM_MUL", fused=True, ne=[(1, 1, 1, 1), (17, 5, 3, 1), (257, 3, 1, 1), (64, 4, 3, 2)],
      broadcast=[False, True])  # fmt: skip
def rms_norm_mul(new: Leaves, ne: Shape, broadcast: bool) -> Tensor:
    weight = new(ne[:1] if broadcast else ne)
    return ops.mul(ops.rms_norm(new(ne), 1e-6), weight)


@case("ADD_RMS_NORM", fused=True, ne=[(17, 5, 1, 1), (256, 1, 1, 1)])
def add_rms_norm(new: Leaves, ne: Shape) -> Tensor:
    """The residual stream is used again after the norm."""
    x = ops.add(new(ne), new(ne))
    return ops.add(ops.mul(ops.rms_norm(x, 1e-6), new(ne[:1])), x)


@case("RMS_NORM_MUL_ROPE", fused=True, ne=[(64, 4, 3, 1), (128, 2, 17, 1)], mode=[0, 2])
def rms_norm_mul_rope(new: Leaves, ne: Shape, mode: int) -> Tensor:
    x = ops.mul(ops.rms_norm(new(ne), 1e-6), new(ne[:1]))
    pos = new(ne[2:3], I32, integers(0, 512))
    return ops.rope_ext(x, pos, None, ne[0], mode, 0, 1e6, 1.0, 0.0, 1.0, 32.0, 1.0)


@case("ROPE_SET_ROWS", fused=True, max_nmse=1e-6, type=[F32, F16], ne=[(64, 2, 5, 1)], mode=[0, 2])
def rope_set_rows(new: Leaves, type: GGMLType, ne: Shape, mode: int) -> Tensor:
    """A rotated key goes to the cache."""
    n_embd, n_tokens = ne[0] * ne[1], ne[2]
    pos = new((n_tokens,), I32, integers(0, 512))
    k = ops.rope_ext(new(ne), pos, None, ne[0], mode, 0, 1e6, 1.0, 0.0, 1.0, 32.0, 1.0)
    cache, idx = new((n_embd, 16), type), new((n_tokens,), I64, row_numbers(16))
    return ops.set_rows(cache, ops.reshape(k, n_embd, n_tokens), idx)


@case("SSM_CONV_SILU", fused=True, d_inner=[17, 64], n_t=[1, 5], n_s=[1, 2])
def ssm_conv_silu(new: Leaves, d_inner: int, n_t: int, n_s: int) -> Tensor:
    return ops.silu(ops.ssm_conv(new((3 + n_t, d_inner, n_s)), new((4, d_inner))))


@case("SSM_CONV_BIAS_SILU", fused=True, d_inner=[17, 64], n_t=[1, 5], n_s=[1, 2])
def ssm_conv_bias_silu(new: Leaves, d_inner: int, n_t: int, n_s: int) -> Tensor:
    y = ops.ssm_conv(new((3 + n_t, d_inner, n_s)), new((4, d_inner)))
    return ops.silu(ops.add(y, new((d_inner,))))


@case("FFN_SWIGLU", fused=True, max_nmse=5e-4, type_a=[BY_NAME[n] for n in ("f16", "q8_0", "q4_K")],
      m=[32, 33], n=[1, 5], k=[256])  # fmt: skip
def ffn_swiglu(new: Leaves, type_a: GGMLType, m: int, n: int, k: int) -> Tensor:
    x = new((k, n))
    gate, up = (ops.mul_mat(new.weight((k, m), type_a), x) for _ in range(2))
    return ops.swiglu_split(gate, up)


@case("TOPK_MOE", fused=True, n_expert=[8, 33], n_used=[1, 4], n_tokens=[1, 3, 17],
      with_norm=[False, True])  # fmt: skip
def topk_moe(new: Leaves, n_expert: int, n_used: int, n_tokens: int, with_norm: bool) -> Tensor:
    """The router: probabilities of the experts, and the weights of the chosen ones."""
    probs = ops.soft_max(new((n_expert, n_tokens), F32, uniform(-3, 3)))
    chosen = ops.argsort_top_k(probs, n_used)
    weights = ops.get_rows(ops.reshape(probs, 1, n_expert, n_tokens), chosen)
    if not with_norm:
        return weights
    weights = ops.reshape(weights, n_used, n_tokens)
    return ops.div(weights, ops.clamp(ops.sum_rows(weights), 6.103515625e-5, float("inf")))


@case("MOE_REDUCE", fused=True, n_embd=[17, 64], n_used=[1, 2, 5, 8], n_tokens=[1, 3])
def moe_reduce(new: Leaves, n_embd: int, n_used: int, n_tokens: int) -> Tensor:
    """Weighted outputs of the chosen experts, added up one view after the other."""
    experts = ops.mul(new((n_embd, n_used, n_tokens)), new((1, n_used, n_tokens)))

    def one(i: int) -> Tensor:
        return ops.view_2d(experts, n_embd, n_tokens, experts.nb[2], i * experts.nb[1])

    total = one(0)
    for i in range(1, n_used):
        total = ops.add(total, one(i))
    return ops.cont(total) if n_used == 1 else total


@case("GATED_DELTA_NET_CACHE", fused=True, n_head=[4], size=[32], n_tokens=[1, 4], n_seqs=[1, 2])
def gated_delta_net_cache(
    new: Leaves, n_head: int, size: int, n_tokens: int, n_seqs: int
) -> Tensor:
    """The new state is copied into the cache."""
    ne = (size, n_head, n_tokens, n_seqs)
    q, k, v = (new(ne, F32, uniform(-0.3, 0.3)) for _ in "qkv")
    g, beta = (new((1, *ne[1:]), F32, uniform(*r)) for r in ((-2, 0), (0, 1)))
    out = ops.gated_delta_net(q, k, v, g, beta, new((size, size, n_head, n_seqs)))
    n_state = size * size * n_head
    first = size * n_head * n_tokens * n_seqs
    state = ops.view_2d(out, n_state, n_seqs, 4 * n_state, 4 * first)
    return ops.cpy(state, new((n_state, n_seqs)))
