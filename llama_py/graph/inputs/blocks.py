"""Positions of cells in a cache, for attention to blocks of positions
(models/minimax-m3.cpp:llm_graph_input_msa)."""

from __future__ import annotations

import math

import numpy as np

from ggml_py.types import F32, I32
from llama_py.batch import UBatch
from llama_py.graph.inputs.base import new_input, write
from llama_py.graph.params import GraphParams
from llama_py.memory.kv import KVCacheContext

FORCED = 1e30  # added to the score of a block that is always chosen


class InputBlocks:
    """n_pos: number of positions of all sequences, rounded up to a whole block.

    bias      F32 [n_blocks, n_tokens] that makes a token's own blocks the best
    pos_mask  F32 [n_pos, n_tokens] 0 if the token sees the position, else -inf
    slots     I32 [n_pos, n_stream] the cell of each position
    slots_f   the same as F32 if each stream has one token, else None
    cell_blk  I32 [n_kv, n_stream] the block of each cell if streams have several tokens
    """

    def __init__(self, params: GraphParams, part: str, size: int, n_local: int) -> None:
        """size  positions of a block; n_local  blocks that end at a token's own"""
        self.part, self.size, self.n_local = part, size, n_local
        self.mctx = params.mctx.kv(part)
        self.n_pos, self.n_kv, self.n_stream, n_tokens = self._sizes(params)
        self.bias = new_input("", F32, self.n_pos // size, n_tokens)
        self.pos_mask = new_input("", F32, self.n_pos, n_tokens)
        self.slots = new_input("", I32, self.n_pos, self.n_stream)
        self.slots_f = self.cell_blk = None
        if n_tokens == self.n_stream:
            self.slots_f = new_input("", F32, self.n_pos, self.n_stream)
        else:
            self.cell_blk = new_input("", I32, self.n_kv, self.n_stream)

    def _sizes(self, params: GraphParams) -> tuple[int, int, int, int]:
        """Return the numbers of positions, cells, streams and tokens."""
        mctx: KVCacheContext = params.mctx.kv(self.part)
        n_pos = -(-mctx.get_n_pos() // self.size) * self.size
        n_stream = 1 if params.cparams.kv_unified else params.ubatch.n_seqs_unq
        return n_pos, mctx.get_n_kv(), n_stream, params.ubatch.n_tokens

    def can_reuse(self, params: GraphParams) -> bool:
        self.mctx = params.mctx.kv(self.part)
        mine = self.n_pos, self.n_kv, self.n_stream, self.bias.ne[1]
        return mine == self._sizes(params)

    def set_input(self, ubatch: UBatch) -> None:
        n_tokens, found = ubatch.n_tokens, self.mctx.sequence_cells(ubatch)
        pos = ubatch.pos[:n_tokens]
        slots = np.zeros((self.n_stream, self.n_pos), np.int32)
        blocks = np.zeros((self.n_stream, self.n_kv), np.int32)
        seen = np.full((n_tokens, self.n_pos), -math.inf, np.float32)
        step = n_tokens // self.n_stream
        for i, (seq_id, cells) in enumerate(found):
            mine = np.flatnonzero(cells.seq[seq_id])
            at = cells.pos[mine]
            slots[i, at[at < self.n_pos]] = mine[at < self.n_pos]
            near = mine[mine < self.n_kv]
            blocks[i, near] = cells.pos[near] // self.size
            here = at[at < self.n_pos]
            for t in range(i * step, (i + 1) * step):
                seen[t, here[here <= pos[t]]] = 0
        write(self.slots, slots)
        write(self.pos_mask, seen)
        if self.slots_f is not None:
            write(self.slots_f, slots.astype(np.float32))
        if self.cell_blk is not None:
            write(self.cell_blk, blocks)
        write(self.bias, self._bias(pos // self.size))

    def _bias(self, last: np.ndarray) -> np.ndarray:
        """Return the bias that forces each token's last blocks; `last`: block of each token."""
        bias = np.zeros((last.size, self.n_pos // self.size), np.float32)
        for back in range(self.n_local):
            rows = np.flatnonzero(last >= back)
            bias[rows, last[rows] - back] = FORCED
        return bias
