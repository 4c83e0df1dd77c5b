"""Sharing of layers by several devices (split modes "row" and "graph").

Graph, which others call tensor parallelism: a block is made once more for each device with some of
the heads and hidden channels (`HParams.shared`), out of the same file (`PartWeights`). Inputs are
the same, so results are partial sums: a REDUCE leaves their sum on every device, and what follows
until the next block each computes for itself (`Spread.at`). Blocks and model files know nothing of
that; a class says by `parts_keep` that parts of its blocks may be added.

Row: only products with matrices are shared, some rows of results each, put together afterwards
(`SplitLinear`).
"""

from __future__ import annotations

from llama_py.loading.split.model import split

__all__ = ["split"]
