"""The weighted sum of a token's experts."""

from __future__ import annotations

from ggml_opencl.table import Launch, fuse, items
from ggml_py.fusion import f32_rows
from ggml_py.pattern import Match
from ggml_py.patterns.experts import EXPERT_SUM


@fuse(EXPERT_SUM, when=f32_rows("x", "weights"))
def weighted_sum(m: Match) -> list[Launch]:
    tensors = (m["x"], m["weights"], m["sum"])
    return [Launch("fused/experts", "weighted_sum", tensors, items(m["sum"].n_elements))]
