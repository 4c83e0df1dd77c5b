"""Launcher of ggml_py/ops/indexer.py."""

from __future__ import annotations

from ggml_opencl.conditions import READABLE, all_typed, dense_rows, every, typed
from ggml_opencl.kernels import quantized_types
from ggml_opencl.table import Launch, defines, items, table
from ggml_py.tensor import Tensor

LARGEST_KEY = 512  # values that an item keeps


def keys(node: Tensor) -> str:
    k = node.src[1]
    if k.ne[0] > LARGEST_KEY:
        return f"needs keys of at most {LARGEST_KEY} values; got {k}"
    return typed(1, *READABLE, *sorted(quantized_types()))(node)


GIVEN = every(all_typed((0, 2, -1), "f32"), typed(3, "f16"), keys, dense_rows(1))


@table.op("LIGHTNING_INDEXER", GIVEN)
def lightning_indexer(node: Tensor) -> list[Launch]:
    n, given = items(node.n_elements), defines(D=node.src[0].ne[0])
    return [Launch("indexer", "lightning_indexer", (*node.src, node), n, (), given)]
