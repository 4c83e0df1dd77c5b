"""Shares of several devices in a layer: whole heads and hidden dimensions."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import replace
from math import gcd, lcm

from ggml_py.tensor import Tensor
from llama_py.hparams.layer_shape import LayerShape

# A block yields its partial result of each all-reduce and receives the sum. The final result is a
# partial sum as well.
Steps = Generator[Tensor, Tensor, Tensor]

EXPERTS = "exps"  # suffix of stems that have one matrix per expert
Whole = tuple[int, str]  # a layer, -1: all layers, and the stem of a matrix


def apportion(n: int, weights: Sequence[float]) -> list[int]:
    """Distribute n items by weight: round down, and give the rest to the largest remainders."""
    total = sum(weights)
    exact = [n * w / total for w in weights]
    counts = [int(x) for x in exact]
    by_remainder = sorted(range(len(weights)), key=lambda i: counts[i] - exact[i])
    for i in by_remainder[: n - sum(counts)]:
        counts[i] += 1
    return counts


class Shard:
    """Share of one device in the layers.

    weights   weights of all devices
    part      index of this device
    by_expert experts are not divided: each device has some whole experts
    block_of  elements of a block of matrices `blk.*.STEM.weight`; 1 if they do not exist
    asked     matrices with shared columns
    idle      matrices without a part for this device
    """

    def __init__(
        self,
        weights: Sequence[float],
        part: int,
        block_of: Callable[[str], int],
        has: Callable[[int, str], bool] = lambda il, stem: True,
        by_expert: bool = False,
    ) -> None:
        """Store the weights; has: returns True if a layer has a matrix of that name."""
        self.weights, self.by_expert, self._has = weights, by_expert, has
        self.part = part
        self.block_of = block_of
        self.idle: set[Whole] = set()
        self.asked: set[Whole] = set()

    def count_own(self, n: int, width: int, *stems: str, il: int = -1) -> int:
        """Return how many of n heads (or dimensions) this device gets.

        width   columns of the matrices `stems` per head. A part has whole blocks of columns, so
                several heads may have to stay together
        il      the layer; -1: all layers are equal

        If no part remains, return the minimum part and note it as idle: the caller must not use
        it.
        """
        experts = {(il, s) for s in stems if s.endswith(EXPERTS) and self._has(il, s)}
        if self.by_expert and experts:
            self.asked |= experts
            return n
        counts, together = self._counts(n, width, stems)
        mine = counts[self.part]
        self.asked |= {(il, stem) for stem in stems}
        if not mine:
            self.idle |= {(il, stem) for stem in stems}
        return max(mine, 1) * together

    def experts(self, n: int, il: int, stem: str) -> tuple[int, int]:
        """Return the first of this device's experts and their number; at minimum one."""
        counts = apportion(n, self.weights)
        mine = counts[self.part]
        if not mine:
            self.idle |= {(il, stem), (-1, stem)} & self.asked
        return min(sum(counts[: self.part]), n - 1), max(mine, 1)

    def count_preceding(self, n: int, width: int, *stems: str) -> int:
        """Return how many heads (or dimensions) the preceding devices get."""
        counts, together = self._counts(n, width, stems)
        return sum(counts[: self.part]) * together

    def _counts(self, n: int, width: int, stems: Sequence[str]) -> tuple[list[int], int]:
        """Return the number of units per device, and the heads per unit."""
        block = lcm(*map(self.block_of, stems))
        together = block // gcd(block, width)
        if n % together:  # no division has whole blocks
            together = n
        return apportion(n // together, self.weights), together

    def heads(self, shape: LayerShape, il: int, *stems: str) -> LayerShape:
        """Return a device's heads of a layer: query heads are on the device of their keys.

        stems  matrices that multiply the heads, if not attn_output
        """
        if not (shape.n_head and shape.n_head_kv):
            return shape
        each = shape.n_head // shape.n_head_kv
        stems = stems or ("attn_output",)
        n = self.count_own(shape.n_head_kv, each * shape.n_embd_head_v, *stems, il=il)
        return replace(shape, n_head=n * each, n_head_kv=n)

    def shard_ffn(self, shape: LayerShape, il: int, *, routed: bool) -> LayerShape:
        """Return a layer's shape with this device's hidden dimensions; routed: n_ff is not the
        experts'."""
        if not shape.n_ff:
            return shape
        stems = ("ffn_down",) if routed else ("ffn_down", "ffn_down_exps")
        return replace(shape, n_ff=self.count_own(shape.n_ff, 1, *stems, il=il))

    def knows(self, il: int, stem: str) -> tuple[bool, bool]:
        """Return whether a layer's matrix has no part here, and whether it was divided."""
        keys = {(il, stem), (-1, stem)}
        return bool(keys & self.idle), bool(keys & self.asked)


def run_steps(steps: Steps) -> Tensor:
    """Run the steps of a block that has all parts, and return its result."""
    try:
        part = next(steps)
        while True:
            part = steps.send(part)
    except StopIteration as end:
        result: Tensor = end.value
        return result
