"""How many splits a graph must have, counted by another way than the scheduler's passes."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from ggml_py.backend import Buffer, Device
from ggml_py.graph import Graph
from ggml_py.tensor import FLAG_INPUT, FLAG_WEIGHT, Tensor

FREE = {"VIEW", "RESHAPE", "PERMUTE", "TRANSPOSE"}  # run anywhere
SMALL = {"ROPE", "FLASH_ATTN_EXT"}  # ops whose weight is too small to draw them to it


def count_splits(graph: Graph, devices: Sequence[Device]) -> int:
    """Runs of equal devices along the nodes that are bound to one.

    A node is bound by the weight that it reads or the cache that it writes. All others join the
    bound nodes on one of their sides (a GPU's first), so they never make a split of their own, as
    long as every device runs every op. Before the first bound node there is none: that is where
    the host's token embeddings are read.
    """
    bound = [b for t in graph.nodes if (b := _binding(t)) is not None]
    homes = [next(d for d in devices if d.can_read(b)) for b in bound]
    return 1 + sum(a is not b for a, b in pairwise(homes))


def _binding(t: Tensor) -> Buffer | None:
    if t.op in FREE:
        return None
    root = t.view_src
    if root is not None and root.op == "NONE" and not root.flags & (FLAG_INPUT | FLAG_WEIGHT):
        return root.buffer
    weights = (s for s in t.src if s is not None and s.flags & FLAG_WEIGHT)
    first = None if t.op in SMALL else next(weights, None)
    return None if first is None else first.buffer
