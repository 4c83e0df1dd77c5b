"""Memory traffic and FLOPs of a node, independent of the device."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from ggml_py._moved import former_names
from ggml_py.opspec import OPS
from ggml_py.tensor import Tensor


def dense_bytes(t: Tensor) -> int:
    """Return the bytes of a tensor's elements, without gaps between them."""
    return math.prod(t.ne) // t.type.block_size * t.type.type_size


def all_sources(t: Tensor) -> int:
    """Return the bytes of a node's sources, each counted once."""
    return sum({id(s): dense_bytes(s) for s in t.src if s is not None}.values())


def count_bytes(t: Tensor) -> int:
    """Return the maximum bytes that a node reads and writes."""
    made = dense_bytes(t)
    if t.view_src is not None and t.src and t.src[0]:  # at most the bytes that are written
        made = min(made, dense_bytes(t.src[0]))
    return made + (OPS[t.op].reads or all_sources)(t)


def flops(t: Tensor) -> float:
    """Return the multiplications and additions of a node, 0 if they do not determine its time."""
    count = OPS[t.op].flops
    return count(t) if count else 0.0


if not TYPE_CHECKING:
    __getattr__ = former_names(__name__, moved="count_bytes")
