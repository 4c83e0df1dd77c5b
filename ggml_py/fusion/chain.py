"""Chains of elementwise nodes, each read only by the next node. The node before a chain, its head,
can be part of the chain if a backend can run both together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import ClassVar

from ggml_py.fusion.match import NodeRow
from ggml_py.fusion.pattern import Match
from ggml_py.tensor import Tensor
from ggml_py.types import F32

Kind = Callable[[Tensor], bool]
MOST = 8  # maximum number of operands, except the head's: a limit of kernels


@dataclass(frozen=True)
class Chain:
    """Chain that a backend can run as one step.

    member  True for a node that can be in the chain: its sources are repeated to its shape
    head    True for a node that a chain can begin with: with its elements, in their order

    In a match, `head` is the head's name, if the chain has a head. It has the elements of the
    result, possibly in another shape.
    """

    member: Kind
    head: Kind
    needs: ClassVar[frozenset[str]] = frozenset()  # required ops

    def __str__(self) -> str:
        return "a chain"

    def matches(self, row: NodeRow) -> Iterator[Match]:
        """Yield every longest chain that shares no nodes with another."""
        for last in reversed(row.nodes):
            if row.is_free(last) and self.member(last):
                found = (m for m in self._find_chains(row, last) if not row.why_not(m))
                if (match := next(found, None)) is not None:
                    yield match

    def _find_chains(self, row: NodeRow, last: Tensor) -> Iterator[Match]:
        """Yield chains to `last`: with the last possible head, earlier heads, then no head."""
        members = self._members(row, last)
        heads = [h for t in members for s in t.sources() if (h := self._head(row, s, t, last))]
        heads.sort(key=row.place, reverse=True)
        for head in heads:
            yield _match(row, members, last, head)
        if len(members) > 1:
            yield _match(row, members, last)

    def _members(self, row: NodeRow, last: Tensor) -> list[Tensor]:
        members, n_read = [last], len(last.sources())
        for t in members:
            for s in dict.fromkeys(t.sources()):
                n = n_read + len(s.src) - 1
                joins = s.type is F32 and s.view_src is None and self.member(s)
                if joins and n <= MOST and _is_read_by(row, s, t):
                    members.append(s)
                    n_read = n
        return members

    def _head(self, row: NodeRow, s: Tensor, reader: Tensor, last: Tensor) -> Tensor | None:
        """Return the node that makes a source, if it can begin the chain."""
        made, whole = s.root, s.ne == last.ne and s.is_contiguous()
        if not (whole and made.n_elements == s.n_elements and made.is_contiguous()):
            return None
        return made if _is_read_by(row, made, reader) and self.head(made) else None


def _is_read_by(row: NodeRow, t: Tensor, reader: Tensor) -> bool:
    """Return True if only `reader` uses a free node's value."""
    alone = row.is_free(t) and row.uses.readers(t) == [reader]
    return alone and not row.uses.is_output(t)


def _match(row: NodeRow, members: list[Tensor], last: Tensor, head: Tensor | None = None) -> Match:
    heads = () if head is None else (head,)
    nodes = sorted((*members, *heads), key=row.place)
    read = dict.fromkeys(s for t in nodes for s in t.src if s is not None)
    operands = [s for s in read if s.root not in nodes]
    return Match({"head": heads}, nodes, [last], operands, row.uses)
