"""The cells of a recurrent memory (llama-memory-recurrent.h:mem_cell)."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from llama_py.batch import I32


@dataclass(slots=True)
class Cell:
    """A row of states, and (as entry i of the list of cells) where sequence i has its state.

    pos     last position of the state, -1 if the cell is empty
    src     current row of the state: its own, or -1 if it must start from zero
    src0    row that the next graph reads
    tail    cell of the sequence whose id is this cell's index, -1: no cell
    n_back  number of tokens that can be rolled back: row g * size + this cell has the state g
            tokens back, for g up to n_back
    at      cell before a move
    seq_id  sequences that share the state
    """

    pos: int = -1
    src: int = -1
    src0: int = -1
    tail: int = -1
    n_back: int = 0
    at: int = -1
    seq_id: set[int] = field(default_factory=set)

    def copy(self) -> Cell:
        return replace(self, seq_id=set(self.seq_id))


def steps_of_one(pos: I32) -> int:
    """Return how many steps of exactly one the positions end with."""
    other = np.flatnonzero(np.diff(pos)[::-1] != 1)
    return int(other[0]) if other.size else pos.size - 1
