"""Blocks and matrices that several devices share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ggml_py.ops import mul_mat
from ggml_py.tensor import Tensor
from llama_py.graph.builder import GraphBuilder
from llama_py.linear import Linear
from llama_py.share import Steps
from llama_py.split.spread import Group, Spread


class SplitBlock:
    """A block whose result is the sum of what devices make with a part of it each.

    parts  by number of the device; None for one without a part
    """

    def __init__(self, parts: Sequence[Any], group: Group) -> None:
        self.parts, self.group = parts, group

    def __call__(self, g: GraphBuilder, *inputs_il: Any) -> Tensor:
        """What the block is given: tensors, the layer. -> [n_embd, n]"""
        spread, *inputs, il = Spread.of(g, self.group), *inputs_il
        for t in inputs:
            g.expand(t)
        running = [
            None if part is None else _steps(part, spread, i, inputs, il)
            for i, part in enumerate(self.parts)
        ]
        given: Tensor | None = None
        while True:
            turns = [
                None if s is None else _Turn(s, spread, i, given) for i, s in enumerate(running)
            ]
            results = [None if t is None else spread.on(i, t.take) for i, t in enumerate(turns)]
            given = spread.all_reduce(results)
            if any(t is not None and t.is_last for t in turns):
                return given


class _Turn:
    """A part's way to its next partial sum: one that all devices need before they go on, or the
    result.

    given  what the last such sum came to
    """

    def __init__(self, steps: Steps, spread: Spread, number: int, given: Tensor | None) -> None:
        self.steps, self.spread, self.number, self.given = steps, spread, number, given
        self.is_last = False

    def take(self) -> Tensor:
        try:
            if self.given is None:
                return next(self.steps)
            return self.steps.send(self.spread.at(self.given, self.number))
        except StopIteration as end:
            self.is_last = True
            result: Tensor = end.value
            return result


def _steps(part: Any, spread: Spread, number: int, inputs: Sequence[Tensor], il: int) -> Steps:
    """A part's partial sums, the last of them its result."""
    g, here = spread.parts[number], [spread.at(t, number) for t in inputs]
    if hasattr(part, "steps"):
        result: Tensor = yield from part.steps(g, *here, il)
    else:
        result = part(g, *here, il)
    return result


class SplitLinear(Linear):
    """A matrix of whose rows each device has some; results lie side by side on the main one."""

    __slots__ = ("group", "rows")

    def __init__(self, whole: Linear, rows: Sequence[Tensor], group: Group) -> None:
        """rows: a matrix [n_in, n_i] of each device"""
        super().__init__(whole.weight, whole.bias, whole.scale, whole.prec, whole.before_bias)
        self.rows, self.group = rows, group

    def product(self, g: GraphBuilder, x: Tensor) -> Tensor:
        spread = Spread.of(g, self.group)
        g.expand(x)
        parts = [
            spread.on(i, lambda i=i, w=w: mul_mat(w, spread.at(x, i), self.prec))
            for i, w in enumerate(self.rows)
        ]
        return spread.side_by_side(parts)
