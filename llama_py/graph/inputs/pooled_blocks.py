"""Blocks of a sequence's positions and their cells, for an indexer that scores blocks
(llama-memory-hybrid-idx.cpp:set_input_qsa)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ggml_py.types import F32, I32
from llama_py.batch import UBatch
from llama_py.graph.inputs.base import new_input, write
from llama_py.graph.params import GraphParams
from llama_py.memory.kv import KVCacheContext
from llama_py.memory.line import Ints, Line
from llama_py.memory.specs import INDEX

FORCED = 1e9  # added to the scores of blocks that are always chosen


@dataclass(slots=True)
class PooledBlocks:
    """Complete blocks of the sequences in one stream.

    owner   by block, the index of its sequence
    first   by block, the index of its first cell within the sequence
    pos     by block, the four positions of that cell
    cells   by block, its cells in order [n, size]
    of      by cell, its block, or -1
    """

    owner: Ints
    first: Ints
    pos: Ints
    cells: Ints
    of: Ints


def build_blocks(lines: list[Line], size: int, n_kv: int) -> PooledBlocks:
    """Return the blocks of several sequences of a stream that share no cells."""
    starts = [line.blocks(size) for line in lines]
    pairs = [*zip(lines, starts, strict=True)]
    cells = np.concatenate([line.runs(i, size) for line, i in pairs])
    of = np.full(n_kv, -1)
    of[cells.reshape(-1)] = np.arange(len(cells)).repeat(size)
    return PooledBlocks(
        np.repeat(np.arange(len(lines)), [i.size for i in starts]),
        np.concatenate([line.places[i] for line, i in pairs]),
        np.concatenate([line.positions(i) for line, i in pairs], 1),
        cells,
        of,
    )


class InputPooledBlocks:
    """Blocks of `size` positions; the incomplete end of each sequence is one more block.

    k_idxs     I64 [n_tokens] cells for the indexer's keys
    cell_blk   I32 [n_kv, n_stream] the block of each cell
    blk_cells  I32 [size * n_blocks, n_stream] the cells of each block
    blk_pos    I32 [4 * n_blocks * n_stream] the positions of each block's first cell
    bias       F32 [n_blocks, tokens of a stream, n_stream] added to a token's scores
    """

    def __init__(self, params: GraphParams, size: int) -> None:
        self.size, self.causal = size, params.cparams.causal_attn
        self.mctx: KVCacheContext = params.mctx.kv(INDEX)
        self.n_kv, self.n_stream, self.n = self._sizes(params)
        self.n_blocks = -(-self.n_kv // size)
        self.k_idxs = self.mctx.build_input_k_idxs(params.ubatch)
        self.cell_blk = new_input("", I32, self.n_kv, self.n_stream)
        self.blk_cells = new_input("", I32, size * self.n_blocks, self.n_stream)
        self.blk_pos = new_input("", I32, 4 * self.n_blocks * self.n_stream)
        self.bias = new_input("", F32, self.n_blocks, self.n, self.n_stream)

    def _sizes(self, params: GraphParams) -> tuple[int, int, int]:
        """Return the numbers of cells, streams, and tokens per stream."""
        n_stream = 1 if params.cparams.kv_unified else params.ubatch.n_seqs_unq
        return self.mctx.get_n_kv(), n_stream, params.ubatch.n_tokens // n_stream

    def can_reuse(self, params: GraphParams) -> bool:
        self.mctx = params.mctx.kv(INDEX)
        return (self.n_kv, self.n_stream, self.n) == self._sizes(params)

    def set_input(self, ubatch: UBatch) -> None:
        self.mctx.set_input_k_idxs(self.k_idxs, ubatch)
        cell_blk = np.empty((self.n_stream, self.n_kv), np.int32)
        blk_cells = np.zeros((self.n_stream, self.n_blocks, self.size), np.int32)
        blk_pos = np.zeros((4, self.n_stream, self.n_blocks), np.int32)
        bias = np.full((self.n_stream, self.n, self.n_blocks), -math.inf, np.float32)
        pos = ubatch.pos.reshape(-1, ubatch.n_tokens)
        for s, (_, cells) in enumerate(self.mctx.sequence_cells(ubatch)):
            mine = slice(s * self.n, (s + 1) * self.n)
            seqs, numbers = np.unique(_viewpoints(ubatch.seq_id[mine]), return_inverse=True)
            lines = [Line(cells, int(seq), self.n_kv) for seq in seqs]
            found = build_blocks(lines, self.size, self.n_kv)
            n = len(found.cells)
            blk_cells[s, :n], blk_pos[:, s, :n] = found.cells, found.pos
            rest = min(n, self.n_blocks - 1)  # one more block for cells outside complete blocks
            cell_blk[s] = np.where(found.of < 0, rest, found.of)
            for number, line in enumerate(lines):
                rows = np.flatnonzero(numbers == number)
                tail = (line.find_places(pos[:, mine][:, rows]) + 1) // self.size * self.size
                bias[s, rows, :n] = self._bias(found, number, tail)
            if n < self.n_blocks:
                bias[s, :, n] = FORCED
        write(self.cell_blk, cell_blk)
        write(self.blk_cells, blk_cells)
        write(self.blk_pos, blk_pos.reshape(-1))
        write(self.bias, bias)

    def _bias(self, found: PooledBlocks, number: int, tail: Ints) -> npt.NDArray[np.float32]:
        """Return the bias of sequence `number`'s blocks for tokens that must see all from `tail`
        [n] on.
        -> [n, blocks]"""
        ahead = self.causal & (found.first >= tail[:, None])
        return np.where(found.owner == number, np.where(ahead, FORCED, 0.0), -math.inf)


def _viewpoints(seq_id: list[tuple[int, ...]]) -> npt.NDArray[np.intp]:
    """Return one sequence of each token, the same one if all tokens share it."""
    common = set(seq_id[0]).intersection(*seq_id[1:])
    return np.array([min(common)] * len(seq_id) if common else [ids[0] for ids in seq_id])
