"""Heads on their way to attention: RMS_NORM and MUL, ROPE and SET_ROWS as one kernel."""

from __future__ import annotations

from ggml_opencl.conditions import float_rows
from ggml_opencl.ops.rope import arguments, rope_macros
from ggml_opencl.table import Launch, fuse
from ggml_py.fusion import f32_rows, in_place, no_overwrite
from ggml_py.fusion.pattern import Match
from ggml_py.patterns.rope import rope_pattern
from ggml_py.tensor import Tensor


def why_not_plain(m: Match) -> str:
    """Return why the tensors are not f32 and rows of floats, or ""."""
    weight = ("weight",) if "weight" in m.found else ()
    return float_rows(m.result) or f32_rows("x", *weight)(m)


def _heads(normed: bool, to_rows: bool, factors: bool) -> None:
    over = no_overwrite if to_rows else in_place("x")

    @fuse(rope_pattern(normed, to_rows, factors), when=why_not_plain, over=over)
    def heads(m: Match) -> list[Launch]:
        x, (turns, scalars) = m["x"], arguments(m["y"])
        tensors: tuple[Tensor, ...] = (x, *turns, m.result)
        if to_rows:
            tensors += (m["ids"],)
        if normed:
            tensors, scalars = (*tensors, m["weight"]), (*scalars, float(m["norm"].param("eps")))
        macros = rope_macros(m["y"], 1, NORMED=int(normed), TO_ROWS=int(to_rows))
        groups = (x.n_rows, 1, 1)
        return [Launch("fused/rope", "head", tensors, groups, scalars, macros, checked=to_rows)]


for _factors in (False, True):
    for _normed, _to_rows in ((True, True), (True, False), (False, True)):
        _heads(_normed, _to_rows, _factors)
