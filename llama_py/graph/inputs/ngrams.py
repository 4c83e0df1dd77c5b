"""Table rows of each token's n-grams
(models/qwen4exp.cpp:llm_graph_input_qwen4exp_ple, llama-kv-cache.cpp:get_prev_tokens)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ggml_py.errors import ContextError
from ggml_py.types import I32
from llama_py.batch import UBatch
from llama_py.graph.inputs.base import new_input, write
from llama_py.graph.params import GraphParams
from llama_py.memory.kv import KVCacheContext
from llama_py.memory.specs import BASE

MISSING = -2  # before a sequence's first token; -1 is an embedding in place of a token

Ids = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Hashes:
    """Groups of 2 to n_gram tokens, each with n_each rows of a table.

    factors   factors of the tokens of a group, the last one first
    firsts, counts   first row and number of rows of each head's part of the table
    end       token that ends a text: it and all earlier tokens are ignored
    image     token id for an embedding
    """

    n_gram: int
    n_each: int
    factors: tuple[int, ...]
    firsts: tuple[int, ...]
    counts: tuple[int, ...]
    end: int
    image: int

    @property
    def n_heads(self) -> int:
        """Table rows per token."""
        return (self.n_gram - 1) * self.n_each

    def rows(self, ids: Ids) -> npt.NDArray[np.int32]:
        """Hash n-grams to rows: ids [n_tokens, n_gram], last first -> [n_tokens, n_heads]."""
        ids = np.where(ids == -1, self.image, ids)
        ended = (ids[:, 1:] == MISSING) | (ids[:, 1:] == self.end)
        ended = np.logical_or.accumulate(ended, 1)
        ids[:, 1:][ended] = self.end
        terms = ids.astype(np.uint64) * np.array(self.factors, np.uint64)
        mixed = np.bitwise_xor.accumulate(terms, 1)[:, 1:].repeat(self.n_each, 1)
        rows = mixed % np.array(self.counts, np.uint64) + np.array(self.firsts, np.uint64)
        return rows.astype(np.int32)


class InputNGrams:
    """rows  I32 [n_heads * n_tokens]"""

    def __init__(self, params: GraphParams, hashes: Hashes) -> None:
        self.hashes = hashes
        self.mctx: KVCacheContext = params.mctx.kv(BASE)
        self.rows = new_input("", I32, hashes.n_heads * params.ubatch.n_tokens)

    def set_input(self, ubatch: UBatch) -> None:
        n = self.hashes.n_gram
        if any(len(ids) > 1 for ids in ubatch.seq_id):
            raise ContextError(
                "this model embeds tokens with the tokens before them, so a token must belong to "
                "one sequence; decode it once per sequence, or copy one with seq_cp"
            )
        ids = np.empty((ubatch.n_tokens, n), np.int64)
        ids[:, 0] = -1 if ubatch.token is None else ubatch.token
        pos = ubatch.pos[: ubatch.n_tokens]
        for seq_id, where in ubatch.by_seq():
            by_order = ubatch.embd_rows[where]
            ids[where, 1:] = self._find_preceding(seq_id, pos[where], n - 1, by_order)
        write(self.rows, self.hashes.rows(ids).reshape(-1))

    def _find_preceding(
        self, seq_id: int, pos: npt.NDArray[np.int32], n: int, by_order: npt.NDArray[np.bool_]
    ) -> npt.NDArray[np.int32]:
        """Return the n tokens before each given position of a sequence, the last first, from
        the cells, which include the ubatch's cells. -> [positions, n]

        by_order  rows of embeddings: positions may repeat, so order the ubatch by the index
        """
        cells = self.mctx.kv.cells[self.mctx.kv.stream_index(seq_id)]
        assert cells.ids is not None
        mine = np.flatnonzero(cells.seq[seq_id])
        mine = mine[np.argsort(cells.pos[mine], kind="stable")]
        back = np.arange(1, n + 1)
        i = np.arange(pos.size)[:, None] - back
        in_order = np.where(i >= 0, pos[np.maximum(i, 0)], pos[0] + i)
        wanted = np.where(by_order[:, None], in_order, pos[:, None] - back)
        at = np.searchsorted(cells.pos[mine], wanted, side="right") - 1
        found = (wanted >= 0) & (at >= 0)
        return np.where(found, cells.ids[mine[at]], MISSING)

    def can_reuse(self, params: GraphParams) -> bool:
        self.mctx = params.mctx.kv(BASE)
        return self.rows.ne[0] == self.hashes.n_heads * params.ubatch.n_tokens
