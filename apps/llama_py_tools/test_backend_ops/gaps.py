"""Test cases with gaps between the elements of source rows, for every op that allows them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby, islice

import numpy as np

from ggml_py.errors import GGMLError
from ggml_py.ops import permute
from ggml_py.tensor import Tensor, shape4
from ggml_py.types import F32, GGMLType
from llama_py_tools.test_backend_ops.case import Array, Case, Init, Leaves, uniform

INPUTS = 8  # inputs of a case, tested one by one
TRIED = 40  # tried cases of an op until one can be built this way


class UnsuitedCase(GGMLError):
    """The case has no such input, or its input cannot have gaps."""


class GappedLeaves(Leaves):
    """Leaves that swap dimensions 0 and 1 of leaf `which` in memory."""

    def __init__(self, new: Leaves, which: int) -> None:
        self.inits, self.weights = new.inits, new.weights
        self.which, self.made = which, 0

    def __call__(
        self, ne: tuple[int, ...], type: GGMLType = F32, init: Init | None = None
    ) -> Tensor:
        self.made += 1
        if self.made - 1 != self.which:
            return super().__call__(ne, type, init)
        n0, n1, n2, n3 = shape4(ne)
        if type.block_size > 1 or n0 < 2 or n1 < 2:
            raise UnsuitedCase(f"rows of {ne} of {type} cannot have gaps")
        stored = super().__call__((n1, n0, n2, n3), type, swap_init(init or uniform()))
        return permute(stored, 1, 0, 2, 3)


def swap_init(init: Init) -> Init:
    """Return an initializer of the same values in memory with the first two dimensions swapped."""

    def init_swapped(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
        seen = (*shape[:-2], shape[-1], shape[-2])
        return np.broadcast_to(init(rng, seen), seen).swapaxes(-1, -2)

    return init_swapped


def with_gaps(case: Case, which: int) -> Case:
    """Return the same case with gaps in the rows of its input number `which`."""

    def build(new: Leaves, gaps: int, **args: object) -> Tensor:
        leaves = GappedLeaves(new, gaps)
        result = case.build(leaves, **args)
        if leaves.made <= gaps:
            raise UnsuitedCase(f"{case} has {leaves.made} inputs")
        return result

    args = {**case.args, "gaps": which}
    return Case(case.op, build, args, case.nmse_bound(), case.compare, case.fused)


def can_be_built(case: Case) -> bool:
    try:
        case.graph()
    except GGMLError:
        return False
    return True


def cases_with_gaps(cases: Iterable[Case]) -> Iterator[Case]:
    """Yield, for each op and each of its inputs, the first case its rules allow; sorted by op."""
    for _, of_op in groupby(cases, key=lambda c: c.op):
        tried = [c for c in of_op if not c.perf][:TRIED]
        for which in range(INPUTS):
            gapped = (with_gaps(c, which) for c in tried)
            yield from islice(filter(can_be_built, gapped), 1)
