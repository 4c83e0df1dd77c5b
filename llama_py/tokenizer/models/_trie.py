"""Which keys a text starts with. Texts and keys are `bytes`, or both are `str`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, TypeAlias

# Nodes by the next byte or character; under None the value of the key that ends here.
Trie: TypeAlias = dict[Any, Any]


def trie(items: Iterable[tuple[bytes | str, int]]) -> Trie:
    """Of keys and their values; the last of equal keys counts."""
    root: Trie = {}
    for key, value in items:
        node = root
        for c in key:
            child = node.get(c)
            if child is None:
                child = node[c] = {}
            node = child
        node[None] = value
    return root


def matches(root: Trie, text: bytes | str, start: int) -> Iterator[tuple[int, int]]:
    """Where each key that stands at `start` ends, and its value; the shortest key first."""
    node, n = root, len(text)
    while start < n and text[start] in node:
        node = node[text[start]]
        start += 1
        if None in node:
            yield start, node[None]


def longest(root: Trie, text: bytes | str, start: int) -> tuple[int, int] | None:
    """Where the longest key that stands at `start` ends, and its value."""
    return max(matches(root, text, start), default=None)


def depth(root: Trie, text: bytes | str, start: int) -> int:
    """How much of the text from `start` on is the beginning of some key."""
    node, at = root, start
    while at < len(text) and text[at] in node:
        node = node[text[at]]
        at += 1
    return at - start
