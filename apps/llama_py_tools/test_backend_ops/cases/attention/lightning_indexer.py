"""Cases of LIGHTNING_INDEXER (ggml_py/ops/attention.py)."""

from __future__ import annotations

import numpy as np

from ggml_py import ops
from ggml_py.tensor import Tensor
from ggml_py.types import BY_NAME, F16, F32, GGMLType
from llama_py_tools.test_backend_ops.case import Array, Leaves, case

KEYS = [F32, F16]
KEYS += [BY_NAME[n] for n in ("bf16", "q8_0", "q5_1", "q5_0", "q4_1", "q4_0", "iq4_nl")]


def causal(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Return random values, with -inf in a quarter of the places."""
    return np.where(rng.random(shape) < 0.25, -np.inf, rng.uniform(-1, 1, shape))


def _flops(hsk: int, nh: int, kv: int, nb: int, **_: object) -> float:
    return 2.0 * hsk * nh * kv * nb


@case("LIGHTNING_INDEXER", max_nmse=1e-6, type_K=KEYS, hsk=[128], nh=[32, 64], kv=[256], nb=[1],
      streams=[(1, 1), (4, 4), (4, 1)])
@case("LIGHTNING_INDEXER", max_nmse=1e-6, type_K=KEYS, hsk=[128], nh=[64],
      kv=[1, 7, 8, 63, 64, 65], nb=[32], streams=[(4, 1)])
@case("LIGHTNING_INDEXER", max_nmse=1e-6, type_K=[F32, F16, KEYS[3]], hsk=[64], nh=[3, 5],
      kv=[33], nb=[3], streams=[(4, 2)])
@case("LIGHTNING_INDEXER", max_nmse=1e-6, type_K=[F16, KEYS[3]], hsk=[128], nh=[32], kv=[256],
      nb=[512], streams=[(1, 1)])
@case("LIGHTNING_INDEXER", max_nmse=1e-6, type_K=KEYS, hsk=[128], nh=[32], kv=[64], nb=[9],
      streams=[(4, 4)])
@case("LIGHTNING_INDEXER", max_nmse=1e-6, type_K=[F32, F16, KEYS[3]], hsk=[64], nh=[4],
      kv=[33], nb=[3], streams=[(2, 1)], v=[True])
@case("LIGHTNING_INDEXER", perf=True, flops=_flops, type_K=[F16, KEYS[3]], hsk=[128], nh=[64],
      kv=[4096], nb=[1, 16], streams=[(1, 1)])
def lightning_indexer(
    new: Leaves, type_K: GGMLType, hsk: int, nh: int, kv: int, nb: int, streams: tuple[int, int],
    v: bool = False,
) -> Tensor:
    """Build LIGHTNING_INDEXER; streams: of the keys, of the mask. v: parts of larger tensors."""
    make = new.part if v else new
    q, k = make((hsk, nh, nb, streams[0])), make((hsk, 1, kv, streams[0]), type_K)
    weights, mask = new((nh, nb, 1, streams[0])), new((kv, nb, 1, streams[1]), F16, causal)
    return ops.lightning_indexer(q, k, weights, mask)
