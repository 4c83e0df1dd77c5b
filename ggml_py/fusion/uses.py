"""Readers of values in a graph."""

from __future__ import annotations

from collections.abc import Iterable

from ggml_py.opspec import OPS
from ggml_py.tensor import FLAG_COMPUTE, FLAG_OUTPUT, Tensor


class Uses:
    """Readers of each value in a graph, including copies to other devices, and its outputs."""

    def __init__(self, nodes: Iterable[Tensor]) -> None:
        self._readers: dict[int, list[Tensor]] = {}
        self._outputs: set[int] = set()
        for t in nodes:
            if t.flags & FLAG_OUTPUT:
                self._outputs.add(id(t.root))
            if t.op == "NONE" or (t.flags & FLAG_COMPUTE and not OPS[t.op].view):
                for s in t.src:
                    if s is not None:
                        readers = self._readers.setdefault(id(s.view_src or s), [])
                        if not readers or readers[-1] is not t:
                            readers.append(t)

    def readers(self, t: Tensor) -> list[Tensor]:
        """Return the nodes that read the bytes that t views, in order."""
        return self._readers.get(id(t.root), [])

    def is_output(self, t: Tensor) -> bool:
        """Return True if t, or another view of its bytes, is an output."""
        return id(t.root) in self._outputs
