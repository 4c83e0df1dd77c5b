"""A backend's table {op: [(when, kernel), ...]}: what it supports, and why not, is read off it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from ggml_py.errors import UnsupportedOp
from ggml_py.tensor import Tensor

When = Callable[[Tensor], str]
K = TypeVar("K")


def always(_: Tensor) -> str:
    return ""


class KernelTable(Generic[K]):
    """Kernels by op. `when(node)` returns "" to accept, else the reason; the first that accepts is
    used.
    """

    def __init__(self, backend: str) -> None:
        self.backend = backend
        self._table: dict[str, list[tuple[When, K]]] = {}

    def add(self, op: str, kernel: K, when: When = always) -> None:
        self._table.setdefault(op, []).append((when, kernel))

    def find(self, node: Tensor) -> K | None:
        for when, kernel in self._table.get(node.op, ()):
            if not when(node):
                return kernel
        return None

    def get(self, node: Tensor) -> K:
        """The kernel for a node; UnsupportedOp with every reason if there is none."""
        kernel = self.find(node)
        if kernel is None:
            raise UnsupportedOp(f"{self.backend} cannot run {describe(node)}: {self.why_not(node)}")
        return kernel

    def why_not(self, node: Tensor) -> str:
        """ "" if some kernel accepts the node, else the reasons."""
        entries = self._table.get(node.op)
        if not entries:
            return f"no kernel for {node.op}"
        reasons = []
        for when, _ in entries:
            reason = when(node)
            if not reason:
                return ""
            reasons.append(reason)
        return one_sentence(reasons)

    def ops(self) -> list[str]:
        return sorted(self._table)


def one_sentence(reasons: list[str], most: int = 4) -> str:
    """Reasons of the form `needs A; got X` told once per X, at most `most` alternatives each."""
    needs: dict[str, list[str]] = {}
    for reason in dict.fromkeys(reasons):
        need, _, got = reason.partition("; got ")
        needs.setdefault(got, []).append(need)
    told = []
    for got, alternatives in needs.items():
        more = f" or {len(alternatives) - most} others" if len(alternatives) > most else ""
        told.append(" or ".join(alternatives[:most]) + more + (f"; got {got}" if got else ""))
    return "; ".join(told)


def describe(node: Tensor) -> str:
    """OP(src, src, ...) -> result, for messages."""
    return f"{node.op}({', '.join(str(s) for s in node.src if s is not None)}) -> {node}"
