"""The table of references: the function that computes each op in NumPy."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import TypeVar

from ggml_py.backend.kernels import KernelTable
from ggml_py.tensor import Tensor
from ggml_ref.values import Integers, Values, load, store, unreadable, unwritable

Step = Callable[[Tensor], None]
Function = TypeVar("Function", bound=Callable[..., Values | Integers])
Stepping = TypeVar("Stepping", bound=Step)


class RefTable(KernelTable[Step]):
    def op(self, name: str, rank: int = 0) -> Callable[[Function], Function]:
        """Register a pure function of the node and its sources' values (float64 or int64 arrays
        [ne3, ne2, ne1, ne0]). It returns the result's values, in the node's shape or flat."""

        def register(function: Function) -> Function:
            @wraps(function)
            def step(node: Tensor) -> None:
                sources = [None if s is None else load(s) for s in node.src]
                store(node, function(node, *sources).reshape(node.ne[::-1]))

            self.add(name, step, types_known, rank)
            return function

        return register

    def step(self, name: str, rank: int = 0) -> Callable[[Stepping], Stepping]:
        """Register a function that reads and writes memory itself: the op touches only a part."""

        def register(function: Stepping) -> Stepping:
            self.add(name, function, types_known, rank)
            return function

        return register


def types_known(node: Tensor) -> str:
    for t in node.src:
        if t is not None and unreadable(t.type):
            return f"no reference for the type {t.type}"
        if t is not None and t.layout:
            return f"{t} has layout {t.layout} of another backend"
    return f"no reference quantization to {node.type}" if unwritable(node.type) else ""


table = RefTable("ref")
