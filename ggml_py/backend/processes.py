"""Protocols of devices and memory in other processes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import numpy as np

from ggml_py._moved import Former, former_names
from ggml_py.tensor import Buffer, Bytes


@dataclass(frozen=True, slots=True)
class FilePart:
    """Bytes of a file: ranges of one axis of an array of bytes, one after another.

    offset, shape  of the array in the file
    """

    path: Path
    offset: int
    shape: tuple[int, ...]
    axis: int
    ranges: tuple[tuple[int, int], ...]

    def extract(self, data: Bytes) -> Bytes:
        """Return the part's bytes from the file's bytes; contiguous ranges are not copied."""
        n = int(np.prod(self.shape))
        return slice_ranges(data[self.offset : self.offset + n], self.shape, self.axis, self.ranges)

    of = Former("extract")


def slice_ranges(
    data: Bytes, shape: Sequence[int], axis: int, ranges: Iterable[tuple[int, int]]
) -> Bytes:
    """Return ranges of one axis of an array of bytes; contiguous ranges are not copied."""
    rows = data.reshape(shape)
    parts = [rows[(slice(None),) * axis + (slice(a, b),)] for a, b in ranges]
    found = parts[0] if len(parts) == 1 else np.concatenate(parts, axis)
    return np.ascontiguousarray(found).reshape(-1)


@runtime_checkable
class ReadsFiles(Protocol):
    """A device in a process that may read files for itself."""

    def from_file(self, part: FilePart) -> Buffer | None:
        """Return memory with bytes of a file; None if the process does not have that file."""


@runtime_checkable
class RemoteDevice(Protocol):
    """A device of another process: `run` only starts its programs. Reading its memory waits for
    their end."""

    elsewhere: bool


@runtime_checkable
class PeerCopyBuffer(Protocol):
    """Memory of another process, which can send bytes to a third without this one."""

    def copy_to_peer(self, offset: int, size: int, target: Buffer, at: int) -> bool:
        """Copy bytes into another buffer; return False if the process cannot do that."""


if not TYPE_CHECKING:
    __getattr__ = former_names(
        __name__, ranges_of="slice_ranges", RunsElsewhere="RemoteDevice", PassesOn="PeerCopyBuffer"
    )
