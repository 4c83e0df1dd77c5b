"""Cases of ggml_py/ops/delta_rule.py."""

from __future__ import annotations

from ggml_py import ops
from ggml_py.tensor import Tensor
from ggml_py.types import F32
from llama_py_tools.test_backend_ops.case import Leaves, case, uniform

GATE = uniform(-4, 0.1)


@case("DELTA_NET", S=[64, 128], heads=[(2, 4)], T=[1, 7, 64], n_seqs=[1, 2],
      repeat=["groups", "tiles"])  # fmt: skip
@case("DELTA_NET", S=[16, 33], heads=[(3, 3), (1, 3)], T=[1, 5], n_seqs=[2], repeat=["tiles"],
      kda=[False, True])  # fmt: skip
@case("DELTA_NET", S=[32], heads=[(2, 4)], T=[1, 5], n_seqs=[2], repeat=["groups"],
      kda=[False, True], saved=[True])  # fmt: skip
@case("DELTA_NET", S=[32], heads=[(2, 4)], T=[5], n_seqs=[2], repeat=["groups"], kda=[False, True],
      v=[True])  # fmt: skip
@case("DELTA_NET", perf=True, S=[128], heads=[(16, 32)], T=[1, 64], n_seqs=[1], repeat=["groups"])
def delta_net(
    new: Leaves, S: int, heads: tuple[int, int], T: int, n_seqs: int, repeat: str,
    kda: bool = False, saved: bool = False, v: bool = False,
) -> Tensor:  # fmt: skip
    """heads: key heads, value heads. v: q, k, v, g and beta are heads by token in memory."""
    n_keys, n_head = heads
    make = new.permuted if v else lambda ne, axes, *more: new(ne, *more)
    q, k = (ops.l2_norm(make((S, T, n_keys, n_seqs), (0, 2, 1, 3)), 1e-6) for _ in "qk")
    values = make((S, T, n_head, n_seqs), (0, 2, 1, 3))
    g = make((T, S if kda else 1, n_head, n_seqs), (2, 1, 0, 3), F32, GATE)
    beta = make((1, T, n_head, n_seqs), (0, 2, 1, 3))
    state = new((S, S * n_head, 1, n_seqs))
    kept = new((max(1, (T - 1) * S * S * n_head * n_seqs),)) if saved else None
    return ops.delta_net(q, k, values, g, beta, state, kept, repeat)


@case("DELTA_NET", S=[32], gate=[60.0, 1e3])
def delta_net_bounds(new: Leaves, S: int, gate: float) -> Tensor:
    """Large gates are cut, and so is the state that they blow up."""
    q, k, v = (new((S, 1, 1, 1)) for _ in "qkv")
    g, beta = new((1, 1, 1, 1), init=uniform(gate, gate)), new((1, 1, 1, 1))
    return ops.delta_net(q, k, v, g, beta, new((S, S, 1, 1)))
