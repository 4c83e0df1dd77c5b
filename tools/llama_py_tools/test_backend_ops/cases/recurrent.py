"""Cases of ggml_py/ops/recurrent.py."""

from __future__ import annotations

import numpy as np

from ggml_py import ops
from ggml_py.tensor import Tensor
from ggml_py.types import F32, I32
from llama_py_tools.test_backend_ops.case import Array, Leaves, case, uniform

Shape = tuple[int, ...]


@case("SSM_CONV", d_conv=[3, 4, 9], d_inner=[17, 64, 257], n_t=[1, 2, 33], n_s=[1, 3])
@case("SSM_CONV", d_conv=[4], d_inner=[1536], n_t=[1, 129], n_s=[1])
@case("SSM_CONV", perf=True, d_conv=[4], d_inner=[8192], n_t=[1, 512], n_s=[1])
def ssm_conv(new: Leaves, d_conv: int, d_inner: int, n_t: int, n_s: int) -> Tensor:
    return ops.ssm_conv(new((d_conv - 1 + n_t, d_inner, n_s)), new((d_conv, d_inner)))


@case("SSM_CONV", d_conv=[3, 4, 9], d_inner=[1024, 2048], n_t=[1, 4, 64], n_s=[1, 4])
def ssm_conv_wide(new: Leaves, d_conv: int, d_inner: int, n_t: int, n_s: int) -> Tensor:
    return ssm_conv(new, d_conv, d_inner, n_t, n_s)


@case("SSM_CONV", d_conv=[4], d_inner=[33], n_t=[1, 5], n_s=[2], v=[True])
def ssm_conv_view(new: Leaves, d_conv: int, d_inner: int, n_t: int, n_s: int, v: bool) -> Tensor:
    return ops.ssm_conv(new.part((d_conv - 1 + n_t, d_inner, n_s)), new((d_conv, d_inner)))


def different_cells(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    return rng.permutation(shape[-1] + 2)[: shape[-1]].reshape(shape)


@case("SSM_SCAN", max_nmse=2e-7, d_state=[16, 128], head_dim=[1], n_head=[33], n_group=[1],
      T=[1, 7], n_seqs=[1, 3])  # fmt: skip
@case("SSM_SCAN", max_nmse=2e-7, d_state=[16, 65, 128], head_dim=[8, 33], n_head=[4],
      n_group=[1, 2], T=[1, 5], n_seqs=[2])  # fmt: skip
@case("SSM_SCAN", max_nmse=2e-7, d_state=[32], head_dim=[16], n_head=[4], n_group=[2], T=[5],
      n_seqs=[2], K=[2, 4])  # fmt: skip
@case("SSM_SCAN", max_nmse=2e-7, d_state=[32], head_dim=[16], n_head=[4], n_group=[2], T=[5],
      n_seqs=[2], v=[True])  # fmt: skip
@case("SSM_SCAN", max_nmse=2e-7, d_state=[16], head_dim=[1], n_head=[1024], n_group=[1], T=[32],
      n_seqs=[4])  # fmt: skip
@case("SSM_SCAN", max_nmse=2e-7, d_state=[96, 256], head_dim=[64, 80], n_head=[8], n_group=[1, 4],
      T=[1, 33], n_seqs=[1, 2])  # fmt: skip
@case("SSM_SCAN", max_nmse=2e-7, d_state=[96, 128], head_dim=[64], n_head=[8], n_group=[2],
      T=[64, 65, 128, 300], n_seqs=[2], slow=[False, True])  # fmt: skip
@case("SSM_SCAN", max_nmse=2e-7, d_state=[128], head_dim=[64, 128], n_head=[4], n_group=[4],
      T=[16], n_seqs=[2], v=[True])  # fmt: skip
@case("SSM_SCAN", max_nmse=2e-7, d_state=[96, 128], head_dim=[64], n_head=[4], n_group=[2],
      T=[4, 8], n_seqs=[2], K=[3, 4])  # fmt: skip
@case("SSM_SCAN", perf=True, d_state=[128], head_dim=[64], n_head=[48], n_group=[1], T=[1, 128],
      n_seqs=[1])  # fmt: skip
def ssm_scan(
    new: Leaves, d_state: int, head_dim: int, n_head: int, n_group: int, T: int, n_seqs: int,
    K: int = 1, v: bool = False, slow: bool = False,
) -> Tensor:  # fmt: skip
    """head_dim 1: Mamba-1, a decay per state; else Mamba-2. v: x, b and c are parts of one row.

    slow: the state decays so little that its beginning is remembered to the end.
    """
    s = new((d_state, head_dim, n_head, n_seqs + 2))
    dt = new((n_head, T, n_seqs), F32, uniform(-5, -4) if slow else None)
    a = new((d_state if head_dim == 1 else 1, n_head), F32, uniform(-1, -0.01))
    ids = new((n_seqs,), I32, different_cells)
    x_size, b_size = head_dim * n_head, d_state * n_group
    if v:
        joint = new((x_size + 2 * b_size, T, n_seqs))
        x = _slice(joint, (head_dim, n_head), 0)
        b, c = (_slice(joint, (d_state, n_group), x_size + i * b_size) for i in range(2))
    else:
        x = new((head_dim, n_head, T, n_seqs))
        b, c = (new((d_state, n_group, T, n_seqs)) for _ in "bc")
    return ops.ssm_scan(s, x, dt, a, b, c, ids, K)


def _slice(joint: Tensor, ne: tuple[int, int], first: int) -> Tensor:
    size = joint.type.type_size
    return ops.view_4d(
        joint, *ne, *joint.ne[1:3], ne[0] * size, joint.nb[1], joint.nb[2], first * size
    )  # fmt: skip


GATE, VALUES = uniform(-20, -1e-4), uniform(-0.3, 5)


@case("GATED_DELTA_NET", head_count=[4], head_size=[16, 32, 64, 128], n_seq_tokens=[1, 5],
      n_seqs=[1, 2], v_repeat=[1, 2], kda=[False, True])  # fmt: skip
@case("GATED_DELTA_NET", head_count=[2], head_size=[32, 64], n_seq_tokens=[63, 64, 65, 100, 129],
      n_seqs=[1, 2], v_repeat=[2], kda=[False, True])  # fmt: skip
@case("GATED_DELTA_NET", head_count=[3], head_size=[17, 48], n_seq_tokens=[1, 9], n_seqs=[1],
      v_repeat=[1], kda=[False, True])  # fmt: skip
@case("GATED_DELTA_NET", head_count=[4], head_size=[32], n_seq_tokens=[5, 65], n_seqs=[2],
      v_repeat=[1, 3], permuted=[True], kda=[False, True])  # fmt: skip
@case("GATED_DELTA_NET", head_count=[4], head_size=[32], n_seq_tokens=[1, 2, 4, 9], n_seqs=[1, 2],
      v_repeat=[2], K=[2, 4], kda=[False, True])  # fmt: skip
@case("GATED_DELTA_NET", head_count=[2], head_size=[64], n_seq_tokens=[1, 33], n_seqs=[1],
      v_repeat=[1], slow=[True], kda=[False, True])  # fmt: skip
@case("GATED_DELTA_NET", head_count=[2], head_size=[32], n_seq_tokens=[0], n_seqs=[1, 2],
      v_repeat=[2], kda=[False, True])  # fmt: skip
@case("GATED_DELTA_NET", head_count=[32], head_size=[16, 128], n_seq_tokens=[1], n_seqs=[1],
      v_repeat=[1], kda=[False, True], permuted=[False, True])  # fmt: skip
@case("GATED_DELTA_NET", head_count=[2], head_size=[64], n_seq_tokens=[127, 200, 256],
      n_seqs=[1, 2], v_repeat=[1], kda=[False, True])  # fmt: skip
@case("GATED_DELTA_NET", head_count=[2], head_size=[16, 128], n_seq_tokens=[4, 8, 16],
      n_seqs=[1, 2], v_repeat=[1], K=[3, 4], kda=[False, True])  # fmt: skip
@case("GATED_DELTA_NET", perf=True, head_count=[16], head_size=[128], n_seq_tokens=[1, 512],
      n_seqs=[1], v_repeat=[2])  # fmt: skip
def gated_delta_net(
    new: Leaves, head_count: int, head_size: int, n_seq_tokens: int, n_seqs: int, v_repeat: int,
    permuted: bool = False, kda: bool = False, K: int = 1, slow: bool = False,
) -> Tensor:  # fmt: skip
    """slow: gates so near zero that the state is remembered over all tokens."""
    h, t, s = head_count * v_repeat, n_seq_tokens, head_size

    def by_head(n_head: int) -> Tensor:
        ne = (s, n_head, t, n_seqs)
        init = VALUES if n_head == h else None
        return new.permuted(ne, (0, 2, 1, 3), F32, init) if permuted else new(ne, F32, init)

    q, k = (ops.l2_norm(by_head(head_count), 1e-6) for _ in "qk")
    g = new((s if kda else 1, h, t, n_seqs), F32, uniform(-0.1, 0) if slow else GATE)
    beta = new((1, h, t, n_seqs), F32, uniform(0, 1))
    return ops.gated_delta_net(q, k, by_head(h), g, beta, new((s, s, h, n_seqs)), K)


@case("GATED_DELTA_NET", head_count=[2], head_size=[32], n_seq_tokens=[1, 5], n_seqs=[2],
      joint=[True])  # fmt: skip
def gated_delta_net_views(
    new: Leaves, head_count: int, head_size: int, n_seq_tokens: int, n_seqs: int, joint: bool
) -> Tensor:
    """q, k and v are parts of one convolution output, as in a model."""
    h, s, t = head_count, head_size, n_seq_tokens
    row = new((3 * s * h, t, n_seqs), F32, uniform(-0.3, 0.3))
    q, k, v = (_slice(row, (s, h), i * s * h) for i in range(3))
    g, beta = new((1, h, t, n_seqs), F32, GATE), new((1, h, t, n_seqs), F32, uniform(0, 1))
    return ops.gated_delta_net(q, k, v, g, beta, new((s, s, h, n_seqs)))
