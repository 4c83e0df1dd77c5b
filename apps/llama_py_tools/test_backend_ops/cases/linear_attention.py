"""Test cases of ggml_py/ops/linear_attention.py."""

from __future__ import annotations

from ggml_py import ops
from ggml_py.tensor import Tensor
from llama_py_tools.test_backend_ops.case import Leaves, case, uniform
from llama_py_tools.test_backend_ops.differences import differs_from_ggml

TOKENS = [(1, 1), (4, 4), (9, 1), (12, 4)]  # tokens, sequences
DECAY = uniform(0.1, 1)


@case("RWKV_WKV6", head_count=[32], head_size=[64], tokens=[(1, 1), (32, 1), (32, 4), (128, 4)])
@case("RWKV_WKV6", head_count=[3], head_size=[16, 33], tokens=TOKENS)
@case("RWKV_WKV6", head_count=[3], head_size=[16, 33], tokens=TOKENS, K=[2, 5])
@case("RWKV_WKV6", perf=True, head_count=[32], head_size=[64], tokens=[(1, 1), (128, 1)])
def rwkv_wkv6(
    new: Leaves, head_count: int, head_size: int, tokens: tuple[int, int], K: int = 1
) -> Tensor:
    ne = (head_size, head_count, tokens[0])
    k, v, r, td = new(ne), new(ne), new(ne), new(ne, init=DECAY)
    state = new((head_size * head_size * head_count, tokens[1]))
    return ops.rwkv_wkv6(k, v, r, new((head_size, head_count)), td, state, K)


@case("RWKV_WKV7", head_count=[32], head_size=[64],
      tokens=[(1, 1), (4, 4), (32, 1), (32, 4), (128, 4)])
@case("RWKV_WKV7", head_count=[3], head_size=[16, 33], tokens=TOKENS)
@case("RWKV_WKV7", head_count=[3], head_size=[16, 33], tokens=TOKENS, K=[2, 5])
@case("RWKV_WKV7", perf=True, head_count=[32], head_size=[64], tokens=[(1, 1), (128, 1)])
def rwkv_wkv7(
    new: Leaves, head_count: int, head_size: int, tokens: tuple[int, int], K: int = 1
) -> Tensor:
    ne = (head_size, head_count, tokens[0])
    r, w, k, v = new(ne), new(ne, init=DECAY), new(ne), new(ne)
    a, b = (ops.l2_norm(new(ne), 1e-7) for _ in "ab")
    state = new((head_size * head_size * head_count, tokens[1]))
    return ops.rwkv_wkv7(r, w, k, v, a, b, state, K)


@case("GATED_LINEAR_ATTN", head_count=[32], head_size=[64],
      tokens=[(1, 1), (32, 1), (32, 4), (128, 4)], scale=[0.125])
@case("GATED_LINEAR_ATTN", head_count=[3], head_size=[16, 33], tokens=TOKENS, scale=[1.0, 0.3])
@case("GATED_LINEAR_ATTN", head_count=[3], head_size=[16, 33], tokens=TOKENS, scale=[0.3], K=[2, 5])
@case("GATED_LINEAR_ATTN", perf=True, head_count=[32], head_size=[64], tokens=[(1, 1), (128, 1)],
      scale=[0.125])
def gated_linear_attn(
    new: Leaves, head_count: int, head_size: int, tokens: tuple[int, int], scale: float, K: int = 1
) -> Tensor:
    ne = (head_size, head_count, tokens[0])
    k, v, q, g = new(ne), new(ne), new(ne), new(ne, init=DECAY)
    state = new((head_size * head_size * head_count, tokens[1]))
    return ops.gated_linear_attn(k, v, q, g, state, scale, K)


for name in ("RWKV_WKV6", "RWKV_WKV7", "GATED_LINEAR_ATTN"):
    differs_from_ggml(name, "returns only the last state", K=[2, 5])
differs_from_ggml("RWKV_WKV7", "reads whole vectors, past the end of heads of this size",
                  head_size=[16, 33])
