"""Test cases of ggml_py/ops/delta_net.py."""

from __future__ import annotations

from ggml_py import ops
from ggml_py.tensor import Tensor
from ggml_py.types import F32
from llama_py_tools.test_backend_ops.case import Leaves, case, uniform
from llama_py_tools.test_backend_ops.cases.ssm import part_of_rows

GATE, VALUES = uniform(-20, -1e-4), uniform(-0.3, 5)


@case("GATED_DELTA_NET", head_count=[4], head_size=[16, 32, 64, 128], n_seq_tokens=[1, 5],
      n_seqs=[1, 2], v_repeat=[1, 2], kda=[False, True])
@case("GATED_DELTA_NET", head_count=[2], head_size=[32, 64], n_seq_tokens=[63, 64, 65, 100, 129],
      n_seqs=[1, 2], v_repeat=[2], kda=[False, True])
@case("GATED_DELTA_NET", head_count=[3], head_size=[17, 48], n_seq_tokens=[1, 9], n_seqs=[1],
      v_repeat=[1], kda=[False, True])
@case("GATED_DELTA_NET", head_count=[4], head_size=[32], n_seq_tokens=[5, 65], n_seqs=[2],
      v_repeat=[1, 3], permuted=[True], kda=[False, True])
@case("GATED_DELTA_NET", head_count=[4], head_size=[32], n_seq_tokens=[1, 2, 4, 9], n_seqs=[1, 2],
      v_repeat=[2], K=[2, 4], kda=[False, True])
@case("GATED_DELTA_NET", head_count=[2], head_size=[64], n_seq_tokens=[1, 33], n_seqs=[1],
      v_repeat=[1], slow=[True], kda=[False, True])
@case("GATED_DELTA_NET", head_count=[2], head_size=[32], n_seq_tokens=[0], n_seqs=[1, 2],
      v_repeat=[2], kda=[False, True])
@case("GATED_DELTA_NET", head_count=[32], head_size=[16, 128], n_seq_tokens=[1], n_seqs=[1],
      v_repeat=[1], kda=[False, True], permuted=[False, True])
@case("GATED_DELTA_NET", head_count=[2], head_size=[64], n_seq_tokens=[127, 200, 256],
      n_seqs=[1, 2], v_repeat=[1], kda=[False, True])
@case("GATED_DELTA_NET", head_count=[2], head_size=[16, 128], n_seq_tokens=[4, 8, 16],
      n_seqs=[1, 2], v_repeat=[1], K=[3, 4], kda=[False, True])
@case("GATED_DELTA_NET", head_count=[3], head_size=[128], n_seq_tokens=[2, 3, 9, 11], n_seqs=[1, 2],
      v_repeat=[1], K=[1, 2, 9], kda=[False, True])
@case("GATED_DELTA_NET", perf=True, head_count=[16], head_size=[128], n_seq_tokens=[1, 8, 512],
      n_seqs=[1], v_repeat=[2])
def gated_delta_net(
    new: Leaves, head_count: int, head_size: int, n_seq_tokens: int, n_seqs: int, v_repeat: int,
    permuted: bool = False, kda: bool = False, K: int = 1, slow: bool = False,
) -> Tensor:
    """Build GATED_DELTA_NET; slow: gates near zero keep the state over all tokens."""
    h, t, s = head_count * v_repeat, n_seq_tokens, head_size

    def by_head(n_head: int) -> Tensor:
        ne = (s, n_head, t, n_seqs)
        init = VALUES if n_head == h else None
        return new.permuted_view(ne, (0, 2, 1, 3), F32, init) if permuted else new(ne, F32, init)

    q, k = (ops.l2_norm(by_head(head_count), 1e-6) for _ in "qk")
    g = new((s if kda else 1, h, t, n_seqs), F32, uniform(-0.1, 0) if slow else GATE)
    beta = new((1, h, t, n_seqs), F32, uniform(0, 1))
    return ops.gated_delta_net(q, k, by_head(h), g, beta, new((s, s, h, n_seqs)), K)


@case("GATED_DELTA_NET", head_count=[2], head_size=[32], n_seq_tokens=[1, 5], n_seqs=[2],
      joint=[True])
def gated_delta_net_views(
    new: Leaves, head_count: int, head_size: int, n_seq_tokens: int, n_seqs: int, joint: bool
) -> Tensor:
    """Build GATED_DELTA_NET with q, k and v as parts of one convolution output, as in a model."""
    h, s, t = head_count, head_size, n_seq_tokens
    row = new((3 * s * h, t, n_seqs), F32, uniform(-0.3, 0.3))
    q, k, v = (part_of_rows(row, (s, h), i * s * h) for i in range(3))
    g, beta = new((1, h, t, n_seqs), F32, GATE), new((1, h, t, n_seqs), F32, uniform(0, 1))
    return ops.gated_delta_net(q, k, v, g, beta, new((s, s, h, n_seqs)))


RAW_GATE = uniform(-4, 0.1)


@case("DELTA_NET", S=[64, 128], heads=[(2, 4)], T=[1, 7, 64], n_seqs=[1, 2],
      repeat=["groups", "tiles"])
@case("DELTA_NET", S=[16, 33], heads=[(3, 3), (1, 3)], T=[1, 5], n_seqs=[2], repeat=["tiles"],
      kda=[False, True])
@case("DELTA_NET", S=[32], heads=[(2, 4)], T=[1, 5], n_seqs=[2], repeat=["groups"],
      kda=[False, True], saved=[True])
@case("DELTA_NET", S=[32], heads=[(2, 4)], T=[5], n_seqs=[2], repeat=["groups"], kda=[False, True],
      v=[True])
@case("DELTA_NET", perf=True, S=[128], heads=[(16, 32)], T=[1, 64], n_seqs=[1], repeat=["groups"])
def delta_net(
    new: Leaves, S: int, heads: tuple[int, int], T: int, n_seqs: int, repeat: str,
    kda: bool = False, saved: bool = False, v: bool = False,
) -> Tensor:
    """Build DELTA_NET; heads: key heads, value heads. v: tensors are in memory by token."""
    n_keys, n_head = heads
    make = new.permuted_view if v else lambda ne, axes, *more: new(ne, *more)
    q, k = (ops.l2_norm(make((S, T, n_keys, n_seqs), (0, 2, 1, 3)), 1e-6) for _ in "qk")
    values = make((S, T, n_head, n_seqs), (0, 2, 1, 3))
    g = make((T, S if kda else 1, n_head, n_seqs), (2, 1, 0, 3), F32, RAW_GATE)
    beta = make((1, T, n_head, n_seqs), (0, 2, 1, 3))
    state = new((S, S * n_head, 1, n_seqs))
    kept = new((max(1, (T - 1) * S * S * n_head * n_seqs),)) if saved else None
    return ops.delta_net(q, k, values, g, beta, state, kept, repeat)


@case("DELTA_NET", S=[32], gate=[60.0, 1e3])
def delta_net_bounds(new: Leaves, S: int, gate: float) -> Tensor:
    """Build DELTA_NET with large gates, which are clamped like the resulting state."""
    q, k, v = (new((S, 1, 1, 1)) for _ in "qkv")
    g, beta = new((1, 1, 1, 1), init=uniform(gate, gate)), new((1, 1, 1, 1))
    return ops.delta_net(q, k, v, g, beta, new((S, S, 1, 1)))
