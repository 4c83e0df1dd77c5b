"""Test cases of ggml_py/ops/ssm.py."""

from __future__ import annotations

import numpy as np

from ggml_py import ops
from ggml_py.tensor import Tensor
from ggml_py.types import F32, I32
from llama_py_tools.test_backend_ops.case import Array, Leaves, case, draws, uniform
from llama_py_tools.test_backend_ops.differences import differs_from_ggml


def part_of_rows(joint: Tensor, ne: tuple[int, int], first: int) -> Tensor:
    """Return [ne0, ne1, T, B] of the rows of joint, from element `first` of each on."""
    size = joint.type.type_size
    return ops.view_4d(
        joint, *ne, *joint.ne[1:3], ne[0] * size, joint.nb[1], joint.nb[2], first * size
    )


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


def sequences(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Return each token's own sequence, then some others, then -1."""
    lines = [rng.permutation(shape[-1]) for _ in range(shape[-2])]
    length = rng.integers(1, shape[-1] + 1, (shape[-2], 1))
    chosen = np.array(lines).reshape(shape[-2:])
    return np.where(np.arange(shape[-1]) < length, chosen, -1)


@case("SSM_CONV_SEQ", d_conv=[2, 4, 9], n_channels=[1, 33, 256], T=[1, 2, 33], n_seqs=[1, 3])
@case("SSM_CONV_SEQ", d_conv=[4], n_channels=[33], T=[1, 5], n_seqs=[1], saved=[True])
@case("SSM_CONV_SEQ", d_conv=[4], n_channels=[33], T=[5], n_seqs=[1, 4], v=[True])
@case("SSM_CONV_SEQ", d_conv=[4], n_channels=[33], T=[0], n_seqs=[2])
@case("SSM_CONV_SEQ", perf=True, d_conv=[4], n_channels=[8192], T=[1, 512], n_seqs=[4])
def ssm_conv_seq(
    new: Leaves, d_conv: int, n_channels: int, T: int, n_seqs: int, saved: bool = False,
    v: bool = False,
) -> Tensor:
    make = new.part if v else new
    s, x = make((d_conv - 1, n_channels, n_seqs)), make((n_channels, T))
    kept = new(((d_conv - 1) * n_channels * T + 5,)) if saved else None
    sq = new((n_seqs, T), I32, sequences)
    return ops.ssm_conv_seq(s, x, new((d_conv, n_channels)), sq, kept)


def different_cells(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    return rng.permutation(shape[-1] + 2)[: shape[-1]].reshape(shape)


@case("SSM_SCAN", max_nmse=2e-7, d_state=[16, 128], head_dim=[1], n_head=[33], n_group=[1],
      T=[1, 7], n_seqs=[1, 3])
@case("SSM_SCAN", max_nmse=2e-7, d_state=[16, 65, 128], head_dim=[8, 33], n_head=[4],
      n_group=[1, 2], T=[1, 5], n_seqs=[2])
@case("SSM_SCAN", max_nmse=2e-7, d_state=[32], head_dim=[16], n_head=[4], n_group=[2], T=[5],
      n_seqs=[2], K=[2, 4])
@case("SSM_SCAN", max_nmse=2e-7, d_state=[32], head_dim=[16], n_head=[4], n_group=[2], T=[5],
      n_seqs=[2], v=[True])
@case("SSM_SCAN", max_nmse=2e-7, d_state=[16], head_dim=[1], n_head=[1024], n_group=[1], T=[32],
      n_seqs=[4])
@case("SSM_SCAN", max_nmse=2e-7, d_state=[96, 256], head_dim=[64, 80], n_head=[8], n_group=[1, 4],
      T=[1, 33], n_seqs=[1, 2])
@case("SSM_SCAN", max_nmse=2e-7, d_state=[96, 128], head_dim=[64], n_head=[8], n_group=[2],
      T=[64, 65, 128, 300], n_seqs=[2], slow=[False, True])
@case("SSM_SCAN", max_nmse=2e-7, d_state=[128], head_dim=[64, 128], n_head=[4], n_group=[4],
      T=[16], n_seqs=[2], v=[True])
@case("SSM_SCAN", max_nmse=2e-7, d_state=[96, 128], head_dim=[64], n_head=[4], n_group=[2],
      T=[4, 8], n_seqs=[2], K=[3, 4])
@case("SSM_SCAN", max_nmse=2e-7, d_state=[16, 33], head_dim=[1], n_head=[33], n_group=[1], T=[1, 7],
      n_seqs=[1, 3], K=[3, 9])
@case("SSM_SCAN", perf=True, d_state=[128], head_dim=[64], n_head=[48], n_group=[1], T=[1, 128],
      n_seqs=[1])
def ssm_scan(
    new: Leaves, d_state: int, head_dim: int, n_head: int, n_group: int, T: int, n_seqs: int,
    K: int = 1, v: bool = False, slow: bool = False,
) -> Tensor:
    """Build SSM_SCAN; head_dim 1: Mamba-1; else Mamba-2. v: x, b and c are parts of one row.

    slow: the state decays so little that its beginning is remembered to the end.
    """
    s = new((d_state, head_dim, n_head, n_seqs + 2))
    dt = new((n_head, T, n_seqs), F32, uniform(-5, -4) if slow else None)
    a = new((d_state if head_dim == 1 else 1, n_head), F32, uniform(-1, -0.01))
    ids = new((n_seqs,), I32, different_cells)
    x_size, b_size = head_dim * n_head, d_state * n_group
    if v:
        joint = new((x_size + 2 * b_size, T, n_seqs))
        x = part_of_rows(joint, (head_dim, n_head), 0)
        b, c = (part_of_rows(joint, (d_state, n_group), x_size + i * b_size) for i in range(2))
    else:
        x = new((head_dim, n_head, T, n_seqs))
        b, c = (new((d_state, n_group, T, n_seqs)) for _ in "bc")
    return ops.ssm_scan(s, x, dt, a, b, c, ids, K)


draws("SSM_SCAN", 3, lambda t: uniform(-1, -0.01))
draws("SSM_SCAN", 6, lambda t: lambda rng, shape: rng.permutation(shape[-1]).reshape(shape))
differs_from_ggml("SSM_SCAN", "does not return earlier states if each state has a decay",
                  head_dim=[1], K=[3, 9])
