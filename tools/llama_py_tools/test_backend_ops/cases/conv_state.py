"""Cases of ggml_py/ops/conv_state.py."""

from __future__ import annotations

import numpy as np

from ggml_py import ops
from ggml_py.tensor import Tensor
from ggml_py.types import I32
from llama_py_tools.test_backend_ops.case import Array, Leaves, case


def sequences(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Each token's own sequence, then some others, then -1."""
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
) -> Tensor:  # fmt: skip
    make = new.part if v else new
    s, x = make((d_conv - 1, n_channels, n_seqs)), make((n_channels, T))
    kept = new(((d_conv - 1) * n_channels * T + 5,)) if saved else None
    sq = new((n_seqs, T), I32, sequences)
    return ops.ssm_conv_seq(s, x, new((d_conv, n_channels)), sq, kept)
