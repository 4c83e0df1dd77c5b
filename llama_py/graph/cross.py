"""Result of an encoder, as the decoder's input (llama-graph.h:llama_cross)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from llama_py.batch import F32, UBatch


@dataclass(slots=True, eq=False)
class Cross:
    """embd  F32 [n_enc, n_embd], the encoder's results; seq_ids  the sequences of each"""

    embd: F32
    seq_ids: list[tuple[int, ...]]

    @property
    def n_enc(self) -> int:
        return int(self.embd.shape[0])

    @property
    def n_embd(self) -> int:
        return int(self.embd.shape[1])

    def visible_tokens(self, ubatch: UBatch) -> npt.NDArray[np.bool_]:
        """Return [n_tokens, n_enc]: True if a token shares a sequence with an encoder token."""
        sets = [set(ids) for ids in self.seq_ids]
        rows = {ids: [not s.isdisjoint(ids) for s in sets] for ids in set(ubatch.seq_id)}
        return np.array([rows[ids] for ids in ubatch.seq_id], np.bool_)
