"""Table of a backend's kernels by op, which gives supported nodes, and reasons against others."""

from __future__ import annotations

import bisect
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from threading import RLock
from types import ModuleType
from typing import Generic, TypeVar

from ggml_py.errors import UnsupportedOp
from ggml_py.opspec import OPS
from ggml_py.tensor import Tensor

When = Callable[[Tensor], str]
Form = tuple[object, ...]
FORMS = 4096  # cached lookups
K = TypeVar("K")


def always(_: Tensor) -> str:
    return ""


def node_form(node: Tensor) -> Form:
    """Return the facts about a node that decide which kernels accept it."""
    form: list[object] = [node.op, node.params, node.type.name, node.ne, node.nb]
    for s in node.src:
        form += (None,) if s is None else (s.type.name, s.ne, s.nb, s.layout)
    return tuple(form)


@dataclass(frozen=True, slots=True)
class KernelEntry(Generic[K]):
    """Entry of a kernel in the table.

    when     returns "" for a node that the kernel takes, by its form, else the reason why not
    rank     the kernel of highest rank runs if several accept a node
    first    the only type that it takes the first source of; "": any
    """

    kernel: K
    when: When = always
    rank: int = 0
    first: str = ""


class KernelTable(Generic[K]):
    """Kernels by op, highest rank first. Two kernels of one rank may not accept the same node.
    A node's form decides its kernel; layers have nodes of the same forms.

    declare  called with an op before its first lookup; adds the missing kernels
    """

    def __init__(self, backend: str, declare: Callable[[str], None] | None = None) -> None:
        self.backend = backend
        self._declare = declare
        self._declared: set[str] = set()
        self._declaring = RLock()  # several threads may plan graphs
        self._table: dict[str, list[KernelEntry[K]]] = {}
        self._by_first: dict[tuple[str, str], list[KernelEntry[K]]] = {}
        self._found: dict[Form, tuple[K | None]] = {}

    def add(self, op: str, kernel: K, when: When = always, rank: int = 0, first: str = "") -> None:
        entries = self._table.setdefault(op, [])
        bisect.insort(
            entries, KernelEntry(kernel, when, rank, first), key=lambda entry: -entry.rank
        )
        self._by_first.clear()
        self._found.clear()

    def _entries(self, op: str) -> list[KernelEntry[K]]:
        """Return all kernels of an op."""
        if self._declare is not None and op not in self._declared:
            with self._declaring:
                if op not in self._declared:
                    self._declare(op)
                    self._declared.add(op)
        return self._table.get(op, [])

    def takers(self, node: Tensor) -> list[KernelEntry[K]]:
        """Return the kernels that take a node, highest rank first."""
        return [entry for entry in self._candidates(node) if not entry.when(node)]

    def _candidates(self, node: Tensor) -> list[KernelEntry[K]]:
        """Return kernels for the type of the first source: ops have kernels for dozens of types."""
        source = node.src[0] if node.src else None
        key = node.op, source.type.name if source is not None else ""
        found = self._by_first.get(key)
        if found is None:
            found = [e for e in self._entries(node.op) if e.first in ("", key[1])]
            self._by_first[key] = found
        return found

    def find(self, node: Tensor) -> K | None:
        form = node_form(node)
        known = self._found.get(form)
        if known is not None:
            return known[0]
        taking = (entry.kernel for entry in self._candidates(node) if not entry.when(node))
        found = next(taking, None)
        if len(self._found) >= FORMS:
            self._found.clear()
        self._found[form] = (found,)
        return found

    def get(self, node: Tensor) -> K:
        """Return the kernel for a node; raise UnsupportedOp with every reason if no kernel fits."""
        kernel = self.find(node)
        if kernel is None:
            raise UnsupportedOp(
                f"{self.backend} does not support {describe(node)}: {self.why_not(node)}"
            )
        return kernel

    def why_not(self, node: Tensor) -> str:
        """Return "" if some kernel accepts the node, else the reasons."""
        entries = self._entries(node.op)
        if not entries:
            return f"no kernel for {node.op}"
        if self.find(node) is not None:
            return ""
        return one_sentence([entry.when(node) for entry in entries])

    def ops(self) -> list[str]:
        return sorted(op for op in {*self._table, *OPS} if self._entries(op))

    def kernels(self, op: str) -> list[K]:
        """Return all kernels of an op, highest rank first."""
        return [entry.kernel for entry in self._entries(op)]


def import_families(package: ModuleType) -> None:
    """Import every file of a package and of its folders, which declares their kernels."""
    for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        import_module(module.name)


def import_family(package: ModuleType, op: str) -> None:
    """Import the file or folder of a package that has the name of the module with the op's
    builder, if it exists."""
    if op not in OPS:
        return
    family = OPS[op].builder.__module__.removeprefix("ggml_py.ops.").split(".")[0]
    if find_spec(name := f"{package.__name__}.{family}") is not None:
        found = import_module(name)
        if hasattr(found, "__path__"):
            import_families(found)


def one_sentence(reasons: list[str], most: int = 4) -> str:
    """Join reasons of the form `needs A; got X` by X, at most `most` alternatives each."""
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
    """Return `OP(src, src, ...) -> result` for messages."""
    return f"{node.op}({', '.join(str(s) for s in node.src if s is not None)}) -> {node}"
