"""Addresses of the blocks of a panel.

A panel block interleaves the 4-byte words of LANES rows; each word is a vector. Types with a scale
of one or two bytes store the scales before the words. If blocks have many words, the scales of as
many blocks as fill a vector precede the words of all these blocks, so that no vector crosses a
cache line. The last group of a panel may have fewer blocks.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ggml_cpu.kernel import Function, fn
from ggml_cpu.target import LANES
from ggml_py.types import GGMLType

WORD = 4 * LANES
MANY = 8  # words per block from which this grouping pays


@dataclass(frozen=True)
class Blocks:
    """Bytes of the words of a panel block, and of its scales if they are not part of the words."""

    words: int
    scales: int = 0

    @property
    def together(self) -> int:
        """Number of blocks whose scales are contiguous."""
        return WORD // self.scales if self.scales and self.words >= MANY * WORD else 1

    @property
    def before(self) -> int:
        """Bytes of scales before the words of a group."""
        return self.together * self.scales


def blocks_of(kind: GGMLType) -> Blocks:
    """Return the Blocks of a type if its panels have the same size as its rows."""
    scale = kind.type_size % 4
    return Blocks((kind.type_size - scale) * LANES, scale * LANES)


def places(blocks: Blocks) -> tuple[Function, Function]:
    """Return two functions that iterate over the blocks i = 0, 1, ... of a panel.

    at(group, i)      addresses of the scales and the words of block i, which is in this group
    after(group, i)   address of the group of block i + 1
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
    """Return an `@fn`, length(n): bytes of a panel of n blocks."""
    together, before, words = blocks.together, blocks.before, blocks.words

    @fn
    def length_of(n: int) -> int:
        return (n + together - 1) // together * before + n * words

    return length_of
