"""OpenCL launchers of the ops in ggml_py/ops/sequence.py."""

from __future__ import annotations

import math

from ggml_opencl.conditions import all_typed, needs_type
from ggml_opencl.table import Launch, defines, items, table
from ggml_py.tensor import Tensor


@table.op("ARANGE", needs_type(-1, "f32"))
def arange(node: Tensor) -> list[Launch]:
    scalars = (float(node.param("start")), float(node.param("step")))
    n, given = items(node.n_elements), defines(RANGES=1)
    return [Launch("sequence", "arange", (node,), n, scalars, given)]


@table.op("TIMESTEP_EMBEDDING", all_typed((0, -1), "f32"))
def timestep_embedding(node: Tensor) -> list[Launch]:
    frequencies = max(node.param("dim") // 2, 1)
    rate = math.log(node.param("max_period")) / frequencies
    n, given = items(node.n_elements), defines(EMBEDDINGS=1)
    return [Launch("sequence", "timestep_embedding", (node.source(0), node), n, (rate,), given)]
