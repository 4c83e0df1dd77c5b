"""Numbers made from a rule: ranges, sine and cosine embeddings of time steps."""

from __future__ import annotations

import math
from ctypes import c_float

from ggml_py.ops.registry import node, op, require
from ggml_py.tensor import Tensor
from ggml_py.types import F32


def _f32(x: float) -> float:
    return c_float(x).value


@op("ARANGE", "start:f stop:f step:f")
def arange(start: float, stop: float, step: float = 1.0) -> Tensor:
    """start, start + step, ... below stop (ggml.c:ggml_arange). -> F32 [ceil((stop-start)/step)]"""
    start, stop, step = _f32(start), _f32(stop), _f32(step)
    ordered = stop > start and step > 0 and math.isfinite(stop - start)
    require(ordered, f"arange: needs start < stop and a positive step, got {start}..{stop}:{step}")
    steps = math.ceil(_f32(_f32(stop - start) / step))
    return node("ARANGE", F32, (steps,), params=(start, stop, step))


@op("TIMESTEP_EMBEDDING", "dim:i max_period:i")
def timestep_embedding(a: Tensor, dim: int, max_period: int) -> Tensor:
    """Cosines, then sines, of a times dim/2 frequencies from 1 down to 1/max_period
    (ggml.c:ggml_timestep_embedding). a [n] -> F32 [dim, n]; an odd dim ends with a zero
    """
    require(
        dim > 0 and max_period > 0,
        f"timestep_embedding: dim and max_period must be positive, got dim={dim!r} and "
        f"max_period={max_period!r}",
        a,
    )
    require(a.has_contiguous_rows(), "timestep_embedding: a must be dense", a)
    return node("TIMESTEP_EMBEDDING", F32, (dim, a.ne[0]), a, params=(dim, max_period))
