"""Trie of keys that a text may start with; both are `bytes`, or both `str`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, TypeAlias

# Nodes by the next byte or character, or, for unvisited nodes, a list of their keys
# and values; under None the value of the key that ends here.
Trie: TypeAlias = dict[Any, Any]


def trie(items: Iterable[tuple[bytes | str, int]]) -> Trie:
    """Make a trie of keys and their values; the last of equal keys counts."""
    return _grow(items, 0)


def _grow(items: Iterable[tuple[bytes | str, int]], depth: int) -> Trie:
    """Return the node of keys that share their first `depth` characters."""
    node: Trie = {}
    for item in items:
        key, value = item
        if len(key) == depth:
            node[None] = value
        elif key[depth] in node:
            node[key[depth]].append(item)
        else:
            node[key[depth]] = [item]
    return node


def _path(root: Trie, text: bytes | str, start: int) -> Iterator[tuple[int, Trie]]:
    """Yield the nodes along the text, with the position after each."""
    node = root
    for at in range(start, len(text)):
        child = node.get(text[at])
        if child is None:
            return
        if type(child) is list:
            child = node[text[at]] = _grow(child, at + 1 - start)
        node = child
        yield at + 1, node


def matches(root: Trie, text: bytes | str, start: int) -> Iterator[tuple[int, int]]:
    """Yield the end and value of each key at `start`, the shortest first."""
    for end, node in _path(root, text, start):
        if None in node:
            yield end, node[None]


def longest_match(root: Trie, text: bytes | str, start: int) -> tuple[int, int] | None:
    """Return the end and value of the longest key at `start`."""
    return max(matches(root, text, start), default=None)


def depth(root: Trie, text: bytes | str, start: int) -> int:
    """Return the length of the text from `start` on that begins some key."""
    return max((end for end, _ in _path(root, text, start)), default=start) - start
