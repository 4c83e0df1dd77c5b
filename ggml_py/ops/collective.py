"""Ops over the parts that several devices hold of one tensor (ik_llama.cpp)."""

from __future__ import annotations

from collections.abc import Sequence

from ggml_py.ops.registry import op, require, view_result
from ggml_py.tensor import MAX_SRC, Tensor
from ggml_py.types import BY_NAME

TYPES = [BY_NAME[n] for n in ("f32", "f16", "bf16", "q8_0")]
ADD = 2  # ggml.h:GGML_OP_ADD, the only way to reduce


@op("REDUCE", "how:i n:i n_have:i off:i receivers:i", writes=range(MAX_SRC))
def all_reduce(parts: Sequence[Tensor | None], receivers: Sequence[int] = ()) -> Tensor:
    """Replace every part by the sum of all parts (ik_llama.cpp ggml.c:ggml_reduce).

    parts      one per device, of equal type and shape; None: the device has no part
    receivers  numbers of parts that receive the sum, but are not added

    Returns a view of the last part.
    """
    have = [t for t in parts if t is not None]
    count = f"reduce: needs 2 to {MAX_SRC} parts, got {len(have)} of {len(parts)}"
    require(len(have) >= 2 and len(parts) <= MAX_SRC, count, *have)
    alike = all(t.type is have[0].type and t.ne == have[0].ne for t in have)
    require(alike, "reduce: all parts must have one type and shape", *have)
    known = have[0].type in TYPES and all(t.is_contiguous() for t in have)
    require(known, "reduce: parts must be contiguous f32, f16, bf16 or q8_0", *have)
    inside = all(0 <= i < len(parts) and parts[i] is not None for i in receivers)
    require(
        inside and len(set(receivers)) < len(have),
        f"reduce: receivers must be a proper subset of the parts, got {list(receivers)}",
        *have,
    )
    params = (ADD, len(parts), len(have), 0, sum(1 << i for i in set(receivers)))
    return view_result("REDUCE", have[-1], *parts, params=params)


def reduce_part(total: Tensor, i: int) -> Tensor:
    """Return device i's copy of a REDUCE's sum: a view of its part i, computed after the REDUCE
    (ik_llama.cpp get_input_tensor_sm_graph).
    """
    part = total.src[i] if i < len(total.src) else None
    known = total.op == "REDUCE" and part is not None
    require(known, f"reduce_part: {i} must be the number of a part of a REDUCE node", total)
    assert part is not None
    name = f"{part.name} (reduced)"
    return Tensor(part.type, part.ne, "VIEW", (part, total), (0,), name, part.nb, part)
