"""Pieces of a file's tensors: rows or columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ggml_py.tensor import Tensor
from llama_py.gguf.file import TensorInfo
from llama_py.gguf.tensor_part import Range, cuts_blocks


@dataclass(slots=True)
class TensorPiece:
    """Piece of a tensor on one device.

    name      name of the file's tensor
    dim       split dimension; None: the tensor is whole
    sections  sizes of the sections along dim; the piece has a part of each
    problem   reason against the split, or ""
    idle      no part remained for this device
    is_sum    products are sums over a split dimension
    """

    tensor: Tensor
    name: str
    dim: int | None
    sections: tuple[int, ...]
    problem: str = ""
    idle: bool = False
    is_sum: bool = False

    @property
    def is_partial(self) -> bool:
        """True if products are partial sums."""
        return (self.dim == 0 and self.tensor.ne[1] > 1) or (self.dim == 2 and self.is_sum)


def list_ranges(pieces: Sequence[TensorPiece]) -> list[list[Range]]:
    """Return the ranges of each piece along the cut dimension, if they make up the tensor."""
    found: list[list[Range]] = [[] for _ in pieces]
    start = 0
    for section in zip(*(p.sections for p in pieces), strict=True):
        for ranges, size in zip(found, section, strict=True):
            ranges.append((start, start + size))
            start += size
    return found


def why_not(pieces: Sequence[TensorPiece], info: TensorInfo) -> str:
    """Return "" if the pieces of all devices make up the file's tensor; else the reason."""
    whole = [p for p in pieces if p.dim is None]
    if len(whole) == len(pieces):
        return ""
    dims = {p.dim for p in pieces}
    if len(dims) > 1 or len({len(p.sections) for p in pieces}) > 1:
        return "devices would split it differently"
    dim = pieces[0].dim or 0
    total = sum(sum(p.sections) for p in pieces)
    if total != info.ne[dim]:
        return f"the parts have {total} of {info.ne[dim]} elements along dimension {dim}"
    if any(cuts_blocks(info, dim, ranges) for ranges in list_ranges(pieces)):
        return f"a split would cut blocks of {info.type.block_size} elements of {info.type}"
    return ""
