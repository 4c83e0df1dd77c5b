"""Launchers of scores: their softmax, and those of keys alone."""

from __future__ import annotations

from ggml_opencl.conditions import (
    FLOATS,
    READABLE,
    all_conditions,
    all_typed,
    dense_rows,
    needs_type,
)
from ggml_opencl.kernels import quantized_types
from ggml_opencl.ops.attention._heads import power_of_two
from ggml_opencl.table import Launch, defines, items, table
from ggml_py.tensor import Tensor


@table.op("SOFT_MAX", all_conditions(all_typed((0, -1, 2), "f32"), needs_type(1, *FLOATS)))
def soft_max(node: Tensor) -> list[Launch]:
    a, mask, sinks = node.source(0), node.optional(1), node.optional(2)
    given = defines(SOFT_MAX=1, MASK=int(mask is not None), SINKS=int(sinks is not None))
    tensors = (a, a if mask is None else mask, a if sinks is None else sinks, node)
    scalars = (float(node.param("scale")), float(node.param("max_bias")), power_of_two(a.ne[2]))
    return [Launch("attention", "soft_max", tensors, (a.n_rows, 1, 1), scalars, given)]


LARGEST_KEY = 512  # values that an item keeps


def indexed_keys(node: Tensor) -> str:
    k = node.source(1)
    if k.ne[0] > LARGEST_KEY:
        return f"needs keys of at most {LARGEST_KEY} values; got {k}"
    return needs_type(1, *READABLE, *sorted(quantized_types()))(node)


INDEXER = all_conditions(
    all_typed((0, 2, -1), "f32"), needs_type(3, "f16"), indexed_keys, dense_rows(1)
)


@table.op("LIGHTNING_INDEXER", INDEXER)
def lightning_indexer(node: Tensor) -> list[Launch]:
    n, given = items(node.n_elements), defines(INDEXER=1, D=node.source(0).ne[0])
    return [Launch("attention", "lightning_indexer", (*node.sources(), node), n, (), given)]
