"""Test case of one op on tensors of given shapes. All modes of the tool and pytest share the
cases."""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from ggml_py.graph import Graph
from ggml_py.ops import permute, view_4d
from ggml_py.tensor import Tensor, shape4
from ggml_py.types import F32, I8, I16, I32, I64, GGMLType

Array = npt.NDArray[Any]
Init = Callable[[np.random.Generator, tuple[int, ...]], Array]
Bound = float | Callable[..., float]
INTEGERS = (I8, I16, I32, I64)


def uniform(low: float = -1.0, high: float = 1.0) -> Init:
    return lambda rng, shape: rng.uniform(low, high, shape)


def integers(low: int, high: int) -> Init:
    """Return an initializer with integers low .. high-1."""
    return lambda rng, shape: rng.integers(low, high, shape)


class Leaves:
    """Makes a case's input tensors: `new(ne, type, init)`, ne as in ggml, fastest first."""

    def __init__(self) -> None:
        self.inits: dict[Tensor, Init] = {}
        self.weights: list[Tensor] = []

    def __call__(
        self, ne: tuple[int, ...], type: GGMLType = F32, init: Init | None = None
    ) -> Tensor:
        leaf = Tensor(type, tuple(ne))
        self.inits[leaf] = init or uniform()
        return leaf

    def weight(self, ne: tuple[int, ...], type: GGMLType, init: Init | None = None) -> Tensor:
        """Add an input that the device may repack, like a weight at model load."""
        leaf = self(ne, type, init)
        self.weights.append(leaf)
        return leaf

    def part(self, ne: tuple[int, ...], type: GGMLType = F32, init: Init | None = None) -> Tensor:
        """Add a window of a larger tensor: rows, planes and batches have gaps between them."""
        n0, n1, n2, n3 = shape4(ne)
        parent = self((2 * n0, n1 + 1, n2 + 1, n3 + 1), type, init)
        return view_4d(parent, n0, n1, n2, n3, *parent.nb[1:], parent.nb[1])

    def half_rows(
        self, ne: tuple[int, ...], type: GGMLType = F32, init: Init | None = None
    ) -> Tensor:
        """Add rows that are the first halves of longer rows; planes and batches have no gaps."""
        parent = self((2 * ne[0], *ne[1:]), type, init)
        return view_4d(parent, *shape4(ne), *parent.nb[1:], 0)

    def second_half(
        self, ne: tuple[int, ...], dim: int, type: GGMLType = F32, init: Init | None = None
    ) -> Tensor:
        """Add the second half of a tensor with twice the size in one dimension."""
        full = shape4(ne)
        parent = self(tuple(2 * n if i == dim else n for i, n in enumerate(full)), type, init)
        first = parent.nb[dim] * full[dim] // (type.block_size if dim == 0 else 1)
        return view_4d(parent, *full, *parent.nb[1:], first)

    def permuted_view(
        self,
        ne: tuple[int, ...],
        axes: tuple[int, ...],
        type: GGMLType = F32,
        init: Init | None = None,
    ) -> Tensor:
        """Add a tensor of shape ne whose dimension axes[i] is dimension i in memory."""
        full = shape4(ne)
        return permute(self(tuple(full[i] for i in axes), type, init), *axes)


@dataclass(frozen=True, slots=True)
class Case:
    """build(new, **args) makes the op's sources with `new` and returns the op's result.

    max_nmse   largest sum((a - b)^2) / sum(a^2) against the reference, or a function of args
    compare    converts values before the comparison (e.g. sorts them if the order is undefined)
    fused      the graph's nodes may be run by one kernel; only the last one's value is compared
    perf       for `perf` mode only: large, and timed
    flops      floating-point operations of one run, as a function of args; None: bytes count
    """

    op: str
    build: Callable[..., Tensor]
    args: dict[str, Any] = field(hash=False)
    max_nmse: Bound = 1e-7
    compare: Callable[[Array], Array] | None = None
    fused: bool = False
    perf: bool = False
    flops: Callable[..., float] | None = None

    @property
    def vars(self) -> str:
        return ",".join(f"{name}={value_text(value)}" for name, value in self.args.items())

    def __str__(self) -> str:
        return f"{self.op}({self.vars})"

    def seed(self, seed: int) -> list[int]:
        """Return a seed by the case and `seed`, independent of other cases."""
        return [seed, zlib.crc32(str(self).encode())]

    def nmse_bound(self) -> float:
        return self.max_nmse(**self.args) if callable(self.max_nmse) else self.max_nmse

    def graph(self) -> tuple[Graph, Leaves]:
        """Build a new graph and its inputs; the last node is the op's result."""
        new, graph = Leaves(), Graph()
        graph.build_forward_expand(self.build(new, **self.args))
        return graph, new


Draw = Callable[[Any], Init]  # returns the initializer for a node
DRAWS: dict[tuple[str, int], Draw] = {}
CASES: list[Case] = []


def draws(op: str, src: int, how: Draw) -> None:
    """Declare values of source `src` of an op's node, if random numbers are invalid."""
    DRAWS[op, src] = how


def draw(node: Tensor, src: int) -> Init:
    """Return the initializer for a source of a node read from a file."""
    if (node.op, src) in DRAWS:
        return DRAWS[node.op, src](node)
    s = node.src[src]
    return integers(0, 2) if s is not None and s.type in INTEGERS else uniform()


def case(
    op: str,
    *,
    max_nmse: Bound = 1e-7,
    compare: Callable[[Array], Array] | None = None,
    fused: bool = False,
    perf: bool = False,
    flops: Callable[..., float] | None = None,
    **grid: list[Any],
) -> Callable[[Callable[..., Tensor]], Callable[..., Tensor]]:
    """Register a case for each combination of the grid's values. May be applied several times."""

    def register(build: Callable[..., Tensor]) -> Callable[..., Tensor]:
        for values in itertools.product(*grid.values()):
            args = dict(zip(grid, values, strict=True))
            CASES.append(Case(op, build, args, max_nmse, compare, fused, perf, flops))
        return build

    return register


def value_text(value: Any) -> str:
    """Write a value as llama.cpp prints it: [1,2] for lists, 0 and 1 for booleans."""
    if isinstance(value, (tuple, list)):
        return f"[{','.join(map(value_text, value))}]"
    if isinstance(value, bool):
        return str(int(value))
    return f"{value:g}" if isinstance(value, float) else str(value)
