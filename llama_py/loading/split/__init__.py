"""Sharing of layers by several devices (split modes "row" and "graph").

Graph is tensor parallelism: each device gets a copy of a block with some of the heads and FFN
dimensions (`HParams.shared`), from the same file (`PartWeights`). Inputs are the same, so results
are partial sums. A REDUCE stores their sum on every device, and each device computes the nodes
before the next block (`Spread.get_replica`). Blocks and model files are unaware of the split; a
class sets `parts_keep` if parts of its blocks may be added.

Row: only matrix multiplications are split. Each device computes some rows of the result, which are
then concatenated (`SplitLinear`).
"""

from __future__ import annotations

from llama_py.loading.split.model import split

__all__ = ["split"]
