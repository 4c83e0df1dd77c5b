"""Small graphs that a backend may run as one fused kernel; tests compare the last value.

Case names are not ops; they list the fused nodes.
"""

from __future__ import annotations

from ggml_py import ops
from ggml_py.ops.rope import IMROPE, MROPE, VISION
from ggml_py.tensor import Tensor
from ggml_py.types import F16, F32, I32, I64, GGMLType
from llama_py_tools.test_backend_ops.case import Leaves, case, integers, uniform
from llama_py_tools.test_backend_ops.cases._long import BOUND, LONG, long_row
from llama_py_tools.test_backend_ops.cases.rows import row_numbers

Shape = tuple[int, ...]


@case("RMS_NORM_MUL", fused=True, ne=[(1, 1, 1, 1), (17, 5, 3, 1), (257, 3, 1, 1), (64, 4, 3, 2)],
      broadcast=[False, True])
def rms_norm_mul(new: Leaves, ne: Shape, broadcast: bool) -> Tensor:
    weight = new(ne[:1] if broadcast else ne)
    return ops.mul(ops.rms_norm(new(ne), 1e-6), weight)


@case("RMS_NORM_MUL", fused=True, max_nmse=BOUND, long=LONG)
def long_rms_norm_mul(new: Leaves, long: str) -> Tensor:
    x = long_row(new, long)
    return ops.mul(ops.rms_norm(x, 1e-6), new(x.ne))


@case("ADD_RMS_NORM", fused=True, ne=[(17, 5, 1, 1), (256, 1, 1, 1)])
@case("ADD_RMS_NORM", fused=True, ne=[(64, 5, 4, 3), (1025, 5, 1, 1), (8192, 1, 1, 1)])
def add_rms_norm(new: Leaves, ne: Shape) -> Tensor:
    """Build a residual sum that is used again after its norm."""
    x = ops.add(new(ne), new(ne))
    return ops.add(ops.mul(ops.rms_norm(x, 1e-6), new(ne[:1])), x)


def _rope(new: Leaves, x: Tensor, mode: int) -> Tensor:
    n_dims = x.ne[0] // 2 if mode == VISION else x.ne[0]
    sections = (n_dims // 2, n_dims // 2, 0, 0)
    if mode in (MROPE, IMROPE):
        third = n_dims // 2 // 3
        sections = (n_dims // 2 - 2 * third, third, third, 0)
    pos = new((x.ne[2] * (4 if mode & MROPE else 1),), I32, integers(0, 512))
    yarn = (1e6, 1.0, 0.0, 1.0, 32.0, 1.0)
    return ops.rope_ext(x, pos, None, n_dims, mode, 0, *yarn, sections)


@case("RMS_NORM_MUL_ROPE", fused=True, ne=[(64, 4, 3, 1), (128, 2, 17, 1)], mode=[0, 2])
@case("RMS_NORM_MUL_ROPE", fused=True, ne=[(768, 1, 1, 1), (128, 4, 7, 2), (8192, 2, 2, 1)],
      mode=[0, 2, IMROPE])
def rms_norm_mul_rope(new: Leaves, ne: Shape, mode: int) -> Tensor:
    return _rope(new, ops.mul(ops.rms_norm(new(ne), 1e-6), new(ne[:1])), mode)


@case("RMS_NORM_MUL_ROPE", fused=True, max_nmse=1e-6, ne=[(128, 4, 3, 1), (256, 1, 1, 1)],
      mode=[0, 2, IMROPE], multi_add=[False, True], broadcast=[False, True],
      set_rows=[None, F32, F16])
def rms_norm_mul_rope_set_rows(
    new: Leaves, ne: Shape, mode: int, multi_add: bool, broadcast: bool, set_rows: GGMLType | None
) -> Tensor:
    """Build a norm and RoPE, optionally after a sum and before a write to the cache."""
    x = new(ne)
    if multi_add:
        x = ops.add(ops.add(x, new(ne)), new(ne))
    x = ops.mul(ops.rms_norm(x, 1e-6), new(ne[:1] if broadcast else ne))
    x = _rope(new, x, mode)
    return x if set_rows is None else _set_rows(new, x, set_rows, I64)


def _set_rows(new: Leaves, k: Tensor, type: GGMLType, index: GGMLType) -> Tensor:
    n_embd, n_tokens, n_seqs = k.ne[0] * k.ne[1], k.ne[2], k.ne[3]
    n_rows = max(16, n_tokens)
    cache = new((n_embd, n_rows, n_seqs), type)
    idx = new((n_tokens,), index, row_numbers(n_rows))
    return ops.set_rows(cache, ops.reshape(k, n_embd, n_tokens, n_seqs), idx)


@case("ROPE_SET_ROWS", fused=True, max_nmse=1e-6, type=[F32, F16], ne=[(64, 2, 5, 1)], mode=[0, 2])
@case("ROPE_SET_ROWS", fused=True, max_nmse=1e-6, type=[F32, F16],
      ne=[(128, 4, 1, 1), (128, 4, 8, 3)], mode=[0, 2, MROPE, VISION, IMROPE])
@case("ROPE_SET_ROWS", fused=True, max_nmse=1e-6, type=[F32], ne=[(128, 4, 129, 1)], mode=[IMROPE],
      index=[I32, I64])
def rope_set_rows(
    new: Leaves, type: GGMLType, ne: Shape, mode: int, index: GGMLType = I64
) -> Tensor:
    """Build a key that RoPE rotates, and that is stored in the cache."""
    return _set_rows(new, _rope(new, new(ne), mode), type, index)


@case("SSM_CONV_SILU", fused=True, d_inner=[17, 64], n_t=[1, 5], n_s=[1, 2])
@case("SSM_CONV_SILU", fused=True, d_inner=[1024], n_t=[1, 4, 64], n_s=[1, 4], d_conv=[3, 9])
def ssm_conv_silu(new: Leaves, d_inner: int, n_t: int, n_s: int, d_conv: int = 4) -> Tensor:
    return ops.silu(ops.ssm_conv(new((d_conv - 1 + n_t, d_inner, n_s)), new((d_conv, d_inner))))


@case("SSM_CONV_BIAS_SILU", fused=True, d_inner=[17, 64], n_t=[1, 5], n_s=[1, 2])
@case("SSM_CONV_BIAS_SILU", fused=True, d_inner=[1024], n_t=[1, 4, 64], n_s=[1, 4], d_conv=[3, 9])
def ssm_conv_bias_silu(new: Leaves, d_inner: int, n_t: int, n_s: int, d_conv: int = 4) -> Tensor:
    y = ops.ssm_conv(new((d_conv - 1 + n_t, d_inner, n_s)), new((d_conv, d_inner)))
    return ops.silu(ops.add(y, new((d_inner,))))


@case("GATED_DELTA_NET_CACHE", fused=True, n_head=[4], size=[32], n_tokens=[1, 4], n_seqs=[1, 2])
@case("GATED_DELTA_NET_CACHE", fused=True, n_head=[4], size=[32, 64], n_tokens=[2, 8],
      n_seqs=[1, 2], K=[2, 4])
def gated_delta_net_cache(
    new: Leaves, n_head: int, size: int, n_tokens: int, n_seqs: int, K: int = 1
) -> Tensor:
    """Build Gated DeltaNet that copies its last K states into the cache."""
    ne = (size, n_head, n_tokens, n_seqs)
    q, k, v = (new(ne, F32, uniform(-0.3, 0.3)) for _ in "qkv")
    g, beta = (new((1, *ne[1:]), F32, uniform(*r)) for r in ((-2, 0), (0, 1)))
    out = ops.gated_delta_net(q, k, v, g, beta, new((size, size, n_head, n_seqs)), K)
    n_state, n_kept = size * size * n_head, min(K, n_tokens)
    first = size * n_head * n_tokens * n_seqs
    state = ops.view_2d(out, n_state, n_seqs * n_kept, 4 * n_state, 4 * first)
    return ops.cpy(state, new((n_state, n_seqs * n_kept)))


@case("GATED_DELTA_NET_IN_CACHE", fused=True, n_tokens=[1, 4, 30], n_seqs=[1, 2, 5], K=[1, 3])
def gated_delta_net_in_cache(new: Leaves, n_tokens: int, n_seqs: int, K: int) -> Tensor:
    """Build Gated DeltaNet that reads its initial states from rows of the cache and copies K states
    into the same cache."""
    size, n_head, n_cells = 16, 3, n_seqs + 1
    ne, n_state, n_kept = (size, n_head, n_tokens, n_seqs), size * size * n_head, min(K, n_tokens)
    cache = new((n_state, n_cells * K))
    ids = new((n_seqs,), I32, row_numbers(n_cells * K))
    state = ops.reshape(ops.get_rows(cache, ids), size, size, n_head, n_seqs)
    q, k, v = (new(ne, F32, uniform(-0.3, 0.3)) for _ in "qkv")
    g, beta = (new((1, *ne[1:]), F32, uniform(*r)) for r in ((-2, 0), (0, 1)))
    out = ops.gated_delta_net(q, k, v, g, beta, state, K)
    kept = ops.view(out, (n_state, n_seqs, n_kept), (n_state, n_state * n_seqs), v.n_elements)
    return ops.cpy(kept, ops.view(cache, kept.ne[:3], (n_state, n_state * n_cells), n_state))


@case("SSM_SCAN_CACHE", fused=True, max_nmse=2e-7, head_dim=[1, 8], n_tokens=[1, 5], n_seqs=[1, 2],
      K=[1, 3])
def ssm_scan_cache(new: Leaves, head_dim: int, n_tokens: int, n_seqs: int, K: int) -> Tensor:
    """Build an SSM scan that copies its last K states into the cache of its initial states."""
    n, n_head, n_group, n_cells = 16, 20, 2 if head_dim > 1 else 1, n_seqs + 1
    size, n_kept = n * head_dim * n_head, min(K, n_tokens)
    cache = new((size, n_cells * K))
    x = new((head_dim, n_head, n_tokens, n_seqs))
    b, c = (new((n, n_group, n_tokens, n_seqs)) for _ in "bc")
    a = new((1 if head_dim > 1 else n, n_head), F32, uniform(-1, -0.01))
    ids = new((n_seqs,), I32, row_numbers(n_cells * K))
    s = ops.reshape(cache, n, head_dim, n_head, n_cells * K)
    out = ops.ssm_scan(s, x, new((n_head, n_tokens, n_seqs)), a, b, c, ids, K)
    state = ops.view(out, (size, n_seqs, n_kept), (size, size * n_seqs), x.n_elements)
    return ops.cpy(state, ops.view(cache, state.ne[:3], (size, size * n_cells), size))


@case("RWKV_WKV6_CACHE", fused=True, head_size=[16, 33], n_tokens=[1, 5], n_seqs=[1, 2], K=[1, 3])
def rwkv_wkv6_cache(new: Leaves, head_size: int, n_tokens: int, n_seqs: int, K: int) -> Tensor:
    (k, v, r, td), state = _rows(new, 4, head_size, n_tokens, n_seqs)
    return _copy_states(new, ops.rwkv_wkv6(k, v, r, new(k.ne[:2]), td, state, K), k, state, K)


@case("RWKV_WKV7_CACHE", fused=True, head_size=[16, 33], n_tokens=[1, 5], n_seqs=[1, 2], K=[1, 3])
def rwkv_wkv7_cache(new: Leaves, head_size: int, n_tokens: int, n_seqs: int, K: int) -> Tensor:
    (k, v, r, w, a), state = _rows(new, 5, head_size, n_tokens, n_seqs)
    a = ops.l2_norm(a, 1e-7)
    return _copy_states(new, ops.rwkv_wkv7(r, w, k, v, a, a, state, K), k, state, K)


@case("GATED_LINEAR_ATTN_CACHE", fused=True, head_size=[16, 33], n_tokens=[1, 5], n_seqs=[1, 2],
      K=[1, 3])
def gated_attn_cache(new: Leaves, head_size: int, n_tokens: int, n_seqs: int, K: int) -> Tensor:
    (k, v, q, g), state = _rows(new, 4, head_size, n_tokens, n_seqs)
    return _copy_states(new, ops.gated_linear_attn(k, v, q, g, state, 0.5, K), k, state, K)


def _rows(
    new: Leaves, n: int, head_size: int, n_tokens: int, n_seqs: int
) -> tuple[list[Tensor], Tensor]:
    """Return the inputs of linear attention per token, and its state."""
    ne = (head_size, 3, n_tokens * n_seqs)
    return [new(ne) for _ in range(n)], new((head_size * head_size * 3, n_seqs))


def _copy_states(new: Leaves, out: Tensor, k: Tensor, state: Tensor, K: int) -> Tensor:
    """Copy the last K states into the cache."""
    size, n_seqs = state.ne[:2]
    n_kept = min(K, k.ne[2] // n_seqs)
    states = ops.view(out, (size, n_seqs, n_kept), (size, size * n_seqs), k.n_elements)
    return ops.cpy(states, ops.view(new((size, 5 * K)), states.ne[:3], (size, size * 5), size))
