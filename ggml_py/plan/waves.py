"""Waves: parts of a split graph that may run at the same time on their devices."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from ggml_py.opspec import OPS
from ggml_py.plan.assign import is_view, sources
from ggml_py.plan.split import GraphPart
from ggml_py.tensor import Tensor


@dataclass(slots=True)
class _Access:
    """Ids of the tensors that a part reads and writes."""

    reads: set[int] = field(default_factory=set)
    writes: set[int] = field(default_factory=set)

    def hinders(self, other: _Access) -> bool:
        """Return True if one part must end before the other part begins."""
        return bool(self.writes & (other.reads | other.writes) or self.reads & other.writes)

    def add(self, other: _Access) -> None:
        self.reads |= other.reads
        self.writes |= other.writes


def in_waves(parts: list[GraphPart]) -> list[list[GraphPart]]:
    """Group consecutive parts that can run at the same time.

    Parts of different devices must not access tensors written by another. Parts of one device run
    in order. A REDUCE is a wave alone.
    """
    waves: list[list[GraphPart]] = []
    by_device: dict[int, _Access] = {}
    alone = True
    for part in parts:
        touched = _find_access(part)
        others = (t for device, t in by_device.items() if device != part.device)
        if alone or part.is_reduce or any(t.hinders(touched) for t in others):
            waves.append([])
            by_device = {}
        waves[-1].append(part)
        by_device.setdefault(part.device, _Access()).add(touched)
        alone = part.is_reduce
    return waves


def _find_access(part: GraphPart) -> _Access:
    found = _Access({id(source.root) for source, _ in part.inputs})
    for node in part.nodes:
        if not is_view(node):
            found.reads |= {id(s.root) for s in sources(node)}
            found.writes |= {id(t.root) for t in written_tensors(node)}
    return found


def written_tensors(node: Tensor) -> Iterator[Tensor]:
    """Yield the tensors that an op writes: its result, and possibly some sources."""
    yield node
    for i in OPS[node.op].writes:
        if i < len(node.src) and (s := node.src[i]) is not None:
            yield s
