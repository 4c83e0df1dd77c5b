"""Test cases of ggml_py/ops/sequence.py."""

from __future__ import annotations

from ggml_py import ops
from ggml_py.tensor import Tensor
from llama_py_tools.test_backend_ops.case import Leaves, case, uniform


@case("ARANGE", start=[0.0], stop=[10.0, 1048576.0], step=[1.0])
@case("ARANGE", start=[-1.5], stop=[2.0], step=[0.1, 0.7, 9.0])
@case("ARANGE", perf=True, start=[0.0], stop=[1048576.0], step=[1.0])
def arange(new: Leaves, start: float, stop: float, step: float) -> Tensor:
    return ops.arange(start, stop, step)


@case("TIMESTEP_EMBEDDING", n=[2], dim=[320], max_period=[10000], largest=[1.0])
@case("TIMESTEP_EMBEDDING", n=[1, 7], dim=[1, 2, 15, 64], max_period=[10, 10000], largest=[1000.0])
@case("TIMESTEP_EMBEDDING", perf=True, n=[512], dim=[1280], max_period=[10000], largest=[1000.0])
def timestep_embedding(new: Leaves, n: int, dim: int, max_period: int, largest: float) -> Tensor:
    return ops.timestep_embedding(new((n,), init=uniform(-largest, largest)), dim, max_period)
