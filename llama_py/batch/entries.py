"""Entries of a mixed batch: tokens, and rows of images, with their positions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from llama_py.batch.batch import F32, I32, NO_TOKEN, Batch, SeqIds


@dataclass(slots=True)
class MediaRows:
    """Rows of an image that a prompt's batches compute.

    rows    F32 [n_tokens, n_embd_inp]
    at      I32 [n_axes, n_tokens]: positions of the rows
    n_pos   number of positions that the image takes
    n_done  number of rows that are computed
    """

    rows: F32
    at: I32
    n_pos: int
    n_done: int = 0

    @property
    def n_left(self) -> int:
        """Number of rows that are not computed."""
        return len(self.rows) - self.n_done


class Entries:
    """Entries of a batch, in order.

    tokens  ids, -1 for each row of an image
    """

    def __init__(self, n_axes: int) -> None:
        """n_axes: number of position axes of the model."""
        self.tokens: list[int] = []
        self._n_axes = n_axes
        self._pos: list[I32] = []
        self._rows: list[F32] = []

    def __len__(self) -> int:
        return len(self.tokens)

    def add_tokens(self, ids: Sequence[int], first: int) -> None:
        """Append tokens at positions from `first` on."""
        self.tokens += ids
        pos = np.arange(first, first + len(ids), dtype=np.int32)
        self._pos.append(np.tile(pos, (self._n_axes, 1)))

    def add_rows(self, media: MediaRows, first: int, n: int) -> None:
        """Append n rows of an image, from row `first` on."""
        part = slice(first, first + n)
        self.tokens += [NO_TOKEN] * n
        self._pos.append(media.at[:, part])
        self._rows.append(media.rows[part])

    def add(self, other: Entries) -> None:
        """Append other entries."""
        self.tokens += other.tokens
        self._pos += other._pos
        self._rows += other._rows

    def batch(self, seq_ids: Sequence[SeqIds], outputs: Sequence[bool] | None = None) -> Batch:
        """Return the batch; seq_ids, outputs: of each entry."""
        pos = np.concatenate(self._pos, axis=1)
        if not self._rows:
            return Batch(self.tokens, None, pos[0], seq_ids, outputs)
        axes = pos if self._n_axes > 1 else pos[0]
        return Batch(self.tokens, np.concatenate(self._rows), axes, seq_ids, outputs)
