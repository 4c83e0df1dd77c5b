"""Blocks and matrices shared by several devices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ggml_py.ops import add, mul_mat
from ggml_py.tensor import Tensor
from llama_py.graph.builder import GraphBuilder
from llama_py.graph.linear import Linear
from llama_py.hparams.shard import Steps
from llama_py.loading.split.spread import Group, Spread


class SplitBlock:
    """Block with partial results on several devices, which are added.

    parts  part of each device; None for a device without a part
    """

    def __init__(self, parts: Sequence[Any], group: Group) -> None:
        self.parts, self.group = parts, group

    def __call__(self, g: GraphBuilder, *inputs_il: Any) -> Tensor:
        """Apply all parts to the block's inputs and the layer's number, and sum. -> [n_embd, n]"""
        spread, *inputs, il = Spread.for_graph(g, self.group), *inputs_il
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
            results = [None if t is None else spread.build(i, t.take) for i, t in enumerate(turns)]
            given = spread.all_reduce(results)
            if any(t is not None and t.is_last for t in turns):
                return given


class SummedParts:
    """Parallel parts of blocks on one device, as one part: their results are added there, so that
    one all-reduce is sufficient.

    parts  in the order of their inputs
    """

    def __init__(self, parts: Sequence[Any]) -> None:
        self.parts = parts

    def steps(self, g: GraphBuilder, *inputs_il: Any) -> Steps:
        """Apply the part to an input of each block [n_embd, n] and the layer's number. -> [n_embd,
        n]"""
        *inputs, il = inputs_il
        total: Tensor | None = None
        for part, x in zip(self.parts, inputs, strict=True):
            result = yield from _iterate_part(part, g, [x], il)
            total = result if total is None else add(total, result)
        assert total is not None
        return total


def join_blocks(blocks: Sequence[Any]) -> SplitBlock | None:
    """Join blocks with added results, so that one all-reduce suffices; None if a block is not split
    or the devices differ."""
    if not all(isinstance(block, SplitBlock) for block in blocks):
        return None
    with_part = {tuple(part is not None for part in block.parts) for block in blocks}
    if len(with_part) > 1:
        return None
    each = [
        None if parts[0] is None else SummedParts(parts)
        for parts in zip(*(block.parts for block in blocks), strict=True)
    ]
    return SplitBlock(each, blocks[0].group)


class _Turn:
    """Steps of a part to its next partial sum: a sum that all devices need for the next nodes,
    or the result.

    given  the last all-reduced sum
    """

    def __init__(self, steps: Steps, spread: Spread, number: int, given: Tensor | None) -> None:
        self.steps, self.spread, self.number, self.given = steps, spread, number, given
        self.is_last = False

    def take(self) -> Tensor:
        try:
            if self.given is None:
                return next(self.steps)
            return self.steps.send(self.spread.get_replica(self.given, self.number))
        except StopIteration as end:
            self.is_last = True
            result: Tensor = end.value
            return result


def _steps(part: Any, spread: Spread, number: int, inputs: Sequence[Tensor], il: int) -> Steps:
    """Yield the partial sums of a part, and return its result."""
    here = [spread.get_replica(t, number) for t in inputs]
    return (yield from _iterate_part(part, spread.parts[number], here, il))


def _iterate_part(part: Any, g: GraphBuilder, inputs: Sequence[Tensor], il: int) -> Steps:
    if hasattr(part, "steps"):
        result: Tensor = yield from part.steps(g, *inputs, il)
    else:
        result = part(g, *inputs, il)
    return result


class SplitLinear(Linear):
    """A matrix with its rows split among devices; results are concatenated on the main device."""

    __slots__ = ("group", "rows")

    def __init__(self, whole: Linear, rows: Sequence[Tensor], group: Group) -> None:
        """Store the parts; rows: a matrix [n_in, n_i] per device."""
        prec = whole.prec, whole.before_bias, whole.in_prec
        super().__init__(whole.weight, whole.bias, whole.scale, *prec)
        self.rows, self.group = rows, group

    def product(self, g: GraphBuilder, x: Tensor) -> Tensor:
        spread, prec = Spread.for_graph(g, self.group), (self.prec, self.in_prec)
        g.expand(x)
        parts = [
            spread.build(i, lambda i=i, w=w: mul_mat(w, spread.get_replica(x, i), *prec))
            for i, w in enumerate(self.rows)
        ]
        return spread.side_by_side(parts)
