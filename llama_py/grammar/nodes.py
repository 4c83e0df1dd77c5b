"""Nodes of a GBNF grammar."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

Ranges: TypeAlias = tuple[tuple[int, int], ...]  # ordered code points, both ends included
MOST = 0x10FFFF
ANY: Ranges = ((0, MOST),)


@dataclass(frozen=True, slots=True)
class Chars:
    """One character in any of the ranges."""

    ranges: Ranges


@dataclass(frozen=True, slots=True)
class TokenChoice:
    """One token of the vocabulary, by its id or its text; `but`: any other one."""

    which: int | str
    but: bool
    at: int  # position in the text


@dataclass(frozen=True, slots=True)
class Ref:
    """Reference to another rule."""

    name: str
    at: int


@dataclass(frozen=True, slots=True)
class Seq:
    """Sequence of several nodes."""

    items: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Alt:
    """Choice of several nodes."""

    items: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Repeat:
    """Repetition from `low` to `high` times; None: any number."""

    item: Node
    low: int
    high: int | None


Node: TypeAlias = "Chars | TokenChoice | Ref | Seq | Alt | Repeat"
Rules: TypeAlias = dict[str, Node]


def children(node: Node) -> tuple[Node, ...]:
    if isinstance(node, (Seq, Alt)):
        return node.items
    return (node.item,) if isinstance(node, Repeat) else ()


def walk(node: Node) -> Iterator[Node]:
    """Yield the node and all nodes below it, without following references."""
    left = [node]
    while left:
        node = left.pop()
        yield node
        left += children(node)


def refs(node: Node) -> Iterator[Ref]:
    return (one for one in walk(node) if isinstance(one, Ref))


def merge_ranges(ranges: list[tuple[int, int]]) -> Ranges:
    """Sort and merge adjacent or overlapping ranges."""
    found: list[tuple[int, int]] = []
    for low, high in sorted(ranges):
        if found and low <= found[-1][1] + 1:
            found[-1] = found[-1][0], max(found[-1][1], high)
        else:
            found.append((low, high))
    return tuple(found)


def complement(ranges: Ranges) -> Ranges:
    """Return all other code points; ranges as `merge_ranges` returns them."""
    found, start = [], 0
    for low, high in ranges:
        if low > start:
            found.append((start, low - 1))
        start = high + 1
    if start <= MOST:
        found.append((start, MOST))
    return tuple(found)


def meet(a: Ranges, b: Ranges) -> bool:
    """Return True if a code point is in both."""
    i = j = 0
    while i < len(a) and j < len(b):
        if a[i][1] < b[j][0]:
            i += 1
        elif b[j][1] < a[i][0]:
            j += 1
        else:
            return True
    return False
