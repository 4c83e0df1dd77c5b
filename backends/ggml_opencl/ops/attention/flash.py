"""Flash attention by blocks of query rows; long KV caches are split into parts and merged."""

from __future__ import annotations

from ggml_opencl.conditions import (
    FLOATS,
    READABLE,
    all_conditions,
    all_typed,
    dense_rows,
    needs_type,
)
from ggml_opencl.kernels import find_types
from ggml_opencl.ops.attention._heads import power_of_two
from ggml_opencl.table import WG, Launch, defines, table
from ggml_py.tensor import Tensor
from ggml_py.types import F32

MOST_ROWS = 16  # maximum query rows per block
ROW_VALUES = 4096  # maximum values of a block: queries in local memory, results in registers
ENOUGH = 256  # work-groups that fill the device, so that keys are not split
WANTED = 1024  # target number of work-groups if keys are split
MOST_PARTS = 64


def why_not_cached(node: Tensor) -> str:
    return all_typed((1, 2), *READABLE, *find_types("element"))(node)


def count_rows(q: Tensor, k: Tensor, v: Tensor) -> int:
    """Return the query rows per block, a power of two."""
    most = min(MOST_ROWS, ROW_VALUES // max(k.ne[0], v.ne[0]))
    rows = q.ne[1] * q.ne[2] // k.ne[2]
    return power_of_two(max(1, min(most, 2 * rows - 1)))


def split_keys(groups: int, n_kv: int) -> tuple[int, int]:
    """Return the number of key parts for `groups` work-groups, and the keys per part."""
    chunks = max(1, -(-n_kv // WG))
    wanted = 1 if groups >= ENOUGH else min(chunks, -(-WANTED // groups), MOST_PARTS)
    length = -(-chunks // wanted)
    return -(-chunks // length), length * WG


@table.op(
    "FLASH_ATTN_EXT", all_conditions(needs_type(0, *FLOATS), why_not_cached, dense_rows(1, 2))
)
def flash_attn_ext(node: Tensor) -> list[Launch]:
    q, k, v = node.sources(3)
    mask, sinks = node.optional(3), node.optional(4)
    rows = count_rows(q, k, v)
    blocks = -(-q.ne[1] * q.ne[2] // k.ne[2] // rows)
    n_part, length = split_keys(max(1, blocks * k.ne[2] * q.ne[3]), k.ne[1])
    given = defines(
        ROWS=rows,
        DK=k.ne[0],
        DV=v.ne[0],
        MASK=int(mask is not None),
        SINKS=int(sinks is not None),
        PARTS=int(n_part > 1),
    )
    parts = Tensor(F32, (v.ne[0] + 2, n_part, q.ne[1] * q.ne[2] * q.ne[3]))
    own = parts if n_part > 1 else node
    sink = q if sinks is None else sinks
    tensors = (q, k, v, q if mask is None else mask, sink, node, own)
    scale, bias, cap = (float(node.param(p)) for p in ("scale", "max_bias", "softcap"))
    scalars = (scale, bias, cap, power_of_two(q.ne[2]), n_part, length)
    groups = (blocks * n_part, k.ne[2], q.ne[3])
    family, scratch = "attention/flash", (parts,) if n_part > 1 else ()
    main = Launch(family, "flash_attn_ext", tensors, groups, scalars, given, scratch=scratch)
    if n_part == 1:
        return [main]
    # same program: main's tensor types apply, although the merge kernel has fewer tensors
    types = main.type_names()
    each = (q.ne[1], q.ne[2], q.ne[3])
    merge = Launch(
        family, "flash_merge", (parts, sink, node), each, (), given, types, scratch=scratch
    )
    return [main, merge]
