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
    def blocks_per_group(self) -> int:
        """Number of blocks whose scales are contiguous."""
        return WORD // self.scales if self.scales and self.words >= MANY * WORD else 1

    @property
    def scale_bytes(self) -> int:
        """Bytes of scales before the words of a group."""
        return self.blocks_per_group * self.scales


def get_blocks(kind: GGMLType) -> Blocks:
    """Return the Blocks of a type if its panels have the same size as its rows."""
    scale = kind.type_size % 4
    return Blocks((kind.type_size - scale) * LANES, scale * LANES)


def places(blocks: Blocks) -> tuple[Function, Function]:
    """Return two functions that iterate over the blocks i = 0, 1, ... of a panel.

    block_addresses(group, i)  addresses of the scales and words of block i, which is in this group
    next_group(group, i)       address of the group of block i + 1
    """
    last, scales, words = blocks.blocks_per_group - 1, blocks.scales, blocks.words
    scale_bytes = blocks.scale_bytes
    size = scale_bytes + blocks.blocks_per_group * words

    @fn
    def block_addresses(group, i):
        return group + (i & last) * scales, group + scale_bytes + (i & last) * words

    @fn
    def next_group(group, i):
        return group + ((i & last) + 1) // (last + 1) * size

    return block_addresses, next_group


def length(blocks: Blocks) -> Callable[[int], int]:
    """Return an `@fn`, length(n): bytes of a panel of n blocks."""
    per_group, scale_bytes, words = blocks.blocks_per_group, blocks.scale_bytes, blocks.words

    @fn
    def panel_bytes(n: int) -> int:
        return (n + per_group - 1) // per_group * scale_bytes + n * words

    return panel_bytes
