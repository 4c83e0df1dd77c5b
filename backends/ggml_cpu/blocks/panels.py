"""Addresses of the blocks of a panel.

A block of LANES rows is words of four bytes, each a vector. Some types also have a scale of one or
two bytes, which lies before the words. Where words are many, the scales of as many blocks as make a
vector lie before the words of these, so that no word lies across two lines of the cache; the last
blocks of a panel may be fewer.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ggml_cpu.kernel import Function, fn
from ggml_cpu.target import LANES
from ggml_py.types import GGMLType

WORD = 4 * LANES
MANY = 8  # words of a block from which that pays for the loop


@dataclass(frozen=True)
class Blocks:
    """Bytes of the words of a block of a panel, and of its scales where these are no words."""

    words: int
    scales: int = 0

    @property
    def together(self) -> int:
        """Blocks whose scales lie together."""
        return WORD // self.scales if self.scales and self.words >= MANY * WORD else 1

    @property
    def before(self) -> int:
        """Bytes before the words of these."""
        return self.together * self.scales


def blocks_of(kind: GGMLType) -> Blocks:
    """Return the blocks of a type whose panels have the bytes of its rows."""
    scale = kind.type_size % 4
    return Blocks((kind.type_size - scale) * LANES, scale * LANES)


def places(blocks: Blocks) -> tuple[Function, Function]:
    """Return functions that walk over the blocks of a panel, i = 0, 1, ..., in groups of adjacent
    ones:

    at(group, i)      the scales and the words of block i, which is in this group
    after(group, i)   the group that the block after it is in
    """
    last, scales, words, before = blocks.together - 1, blocks.scales, blocks.words, blocks.before
    size = before + blocks.together * words

    @fn
    def at(group, i):
        return group + (i & last) * scales, group + before + (i & last) * words

    @fn
    def after(group, i):
        return group + ((i & last) + 1) // (last + 1) * size

    return at, after


def length(blocks: Blocks) -> Callable[[int], int]:
    """Return length(n), bytes of a panel of n blocks; an `@fn`."""
    together, before, words = blocks.together, blocks.before, blocks.words

    @fn
    def length_of(n: int) -> int:
        return (n + together - 1) // together * before + n * words

    return length_of
