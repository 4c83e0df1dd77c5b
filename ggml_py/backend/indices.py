"""Errors for index data that names no row.

Backends do not access the row of an invalid index. The remaining results of the computation are
undefined.
"""

from __future__ import annotations

from collections.abc import Sequence

from ggml_py.errors import OutOfRange
from ggml_py.tensor import Tensor


def out_of_range(
    node: Tensor, index: int, n: int, operands: Sequence[Tensor | None] = ()
) -> OutOfRange:
    """Return the error for an index of the node's data that is not in range(n).

    operands  of a step that runs the node, where these are not only its sources
    """
    given = [t for t in operands or node.src if t is not None and t.type.name in ("i32", "i64")]
    return OutOfRange(
        f"{node.op} {node}: index must be in [0, {n}), got {index}; check the values of "
        f"{', '.join(map(str, given))}"
    )
