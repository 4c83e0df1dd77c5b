"""Launchers of ggml_py/ops/attention.py."""

from __future__ import annotations

from ggml_opencl.conditions import FLOATS, READABLE, all_typed, dense_rows, every, typed
from ggml_opencl.kernels import quantized_types, types_with
from ggml_opencl.table import Launch, defines, items, table
from ggml_py.tensor import Tensor


def power_of_two(n_head: int) -> int:
    """The largest in n_head."""
    return 1 << (max(n_head, 1).bit_length() - 1)


@table.op("SOFT_MAX", every(all_typed((0, -1, 2), "f32"), typed(1, *FLOATS)))
def soft_max(node: Tensor) -> list[Launch]:
    a, mask, sinks = node.source(0), node.optional(1), node.optional(2)
    given = defines(SOFT_MAX=1, MASK=int(mask is not None), SINKS=int(sinks is not None))
    tensors = (a, a if mask is None else mask, a if sinks is None else sinks, node)
    scalars = (float(node.param("scale")), float(node.param("max_bias")), power_of_two(a.ne[2]))
    return [Launch("attention", "soft_max", tensors, (a.n_rows, 1, 1), scalars, given)]


def cached(node: Tensor) -> str:
    return all_typed((1, 2), *READABLE, *types_with("element"))(node)


FLASH = every(typed(0, *FLOATS), cached, dense_rows(1, 2))


@table.op("FLASH_ATTN_EXT", FLASH)
def flash_attn_ext(node: Tensor) -> list[Launch]:
    q, k, v = node.sources(3)
    mask, sinks = node.optional(3), node.optional(4)
    given = defines(
        FLASH=1, DK=k.ne[0], DV=v.ne[0], MASK=int(mask is not None), SINKS=int(sinks is not None)
    )
    tensors = (q, k, v, q if mask is None else mask, q if sinks is None else sinks, node)
    scale, bias, cap = (float(node.param(p)) for p in ("scale", "max_bias", "softcap"))
    scalars = (scale, bias, cap, power_of_two(q.ne[2]))
    groups = (q.ne[1], q.ne[2], q.ne[3])
    return [Launch("attention", "flash_attn_ext", tensors, groups, scalars, given)]


LARGEST_KEY = 512  # values that an item keeps


def indexed_keys(node: Tensor) -> str:
    k = node.source(1)
    if k.ne[0] > LARGEST_KEY:
        return f"needs keys of at most {LARGEST_KEY} values; got {k}"
    return typed(1, *READABLE, *sorted(quantized_types()))(node)


INDEXER = every(all_typed((0, 2, -1), "f32"), typed(3, "f16"), indexed_keys, dense_rows(1))


@table.op("LIGHTNING_INDEXER", INDEXER)
def lightning_indexer(node: Tensor) -> list[Launch]:
    n, given = items(node.n_elements), defines(INDEXER=1, D=node.source(0).ne[0])
    return [Launch("attention", "lightning_indexer", (*node.sources(), node), n, (), given)]
