"""Pools of neighboring tokens, for attention that selects some pools.

See models/glm5-next.cpp:llm_graph_input_kpool, llama-memory-hybrid-idx.cpp:set_input_kpool.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from ggml_py.types import F16, F32, I32, I64
from llama_py.batch import I32 as Ints
from llama_py.batch import UBatch
from llama_py.graph.inputs.base import new_input, write
from llama_py.graph.params import GraphParams
from llama_py.memory.kpool import KPoolContext, PoolPlan, SeqPools
from llama_py.memory.specs import INDEX

MOST_GATHERED = 16  # maximum tokens of a ubatch for gathering cells
Cells = npt.NDArray[np.int64]
NO_POSITIONS = np.empty((4, 0), np.int32)


def kpool_context(params: GraphParams) -> KPoolContext:
    """Return the context of the cache that has the keys for choosing pools."""
    mctx = params.mctx.kv(INDEX)
    assert isinstance(mctx, KPoolContext)
    return mctx


class InputKPool:
    """Graph input: n_pool pools of `size` tokens, with n_top pools chosen for each token.

    n_sel is the number of cells of the chosen pools and of the tokens after the last pool.

    gathers    read only the chosen cells; else a mask hides all others
    k_idxs     I64 [n_tokens] rows of the cache, which have key, gate and key of a pool
    cells      I32 [n_pool] the row that has a pool's key
    members    I32 [size, n_pool] the cells of each pool's tokens; invalid cells if unused
    mask       [n_pool, n_tokens] 0 if the token sees the pool, else -inf; F16 for the fused op
    tails      I32 [size - 1, n_tokens] cells of the tokens since the last pool
    live       F32 [n_sel, 1, 1, n_tokens] 0 for chosen cells, -inf for the unused rest
    new        I32 [size, n_new] rows of the tokens of pools without a cached key; repeats the last
    new_rows   I64 [n_new] target rows of the new keys; None if they are not cached
    new_pos    I32 [4 * n_new] positions of the first token of each new pool

    Gathered cells are numbered over all streams; other cells within the token's stream.
    """

    def __init__(self, params: GraphParams, n_chosen: int, f16: bool, masks: bool = True) -> None:
        """Create the tensors for at most n_chosen pools.

        f16    the mask is F16
        masks  the graph gathers no cells, and does not depend on the number of new pools
        """
        self.mctx = mctx = kpool_context(params)
        plan, n_tokens = mctx.plan, params.ubatch.n_tokens
        self.size, self.n_pool = size, n_pool = plan.size, plan.n_pool
        self.masks, self.safe = masks, plan.safe
        self.n_new = self._count_new(params)
        self.n_kv = mctx.get_n_kv()
        self.n_top = min(n_pool, n_chosen)
        self.n_sel = size * self.n_top + size - 1
        few = n_tokens <= MOST_GATHERED and self.n_kv > self.n_sel
        self.gathers = few and not masks
        self.k_idxs = mctx.build_input_k_idxs(params.ubatch)
        self.cells = new_input("", I32, n_pool)
        self.members = new_input("", I32, size, n_pool)
        self.mask = new_input("", F16 if f16 else F32, n_pool, n_tokens)
        self.tails = new_input("", I32, size - 1, n_tokens)
        self.live = new_input("", F32, self.n_sel, 1, 1, n_tokens)
        self.new = new_input("", I32, size, self.n_new)
        self.new_rows = new_input("", I64, self.n_new) if plan.safe else None
        self.new_pos = new_input("", I32, 4 * self.n_new)

    def can_reuse(self, params: GraphParams) -> bool:
        self.mctx = mctx = kpool_context(params)
        plan = mctx.plan
        return (
            self.k_idxs.ne[0] == params.ubatch.n_tokens
            and (self.n_pool, self.safe) == (plan.n_pool, plan.safe)
            and self.n_new == self._count_new(params)
            and self.n_kv == mctx.get_n_kv()
        )

    def _count_new(self, params: GraphParams) -> int:
        """Return the number of new keys in the graph."""
        ubatch, n_new = params.ubatch, self.mctx.plan.n_new
        if not (self.masks and self.mctx.plan.safe):
            return n_new
        return max(ubatch.n_tokens // self.size + ubatch.n_seqs_unq, n_new)

    def set_input(self, ubatch: UBatch) -> None:
        plan = self.mctx.plan
        self.mctx.set_input_k_idxs(self.k_idxs, ubatch)
        seq = plan.seqs[ubatch.seq_id[0][0]]
        own, _ = seq.find_cells(ubatch.pos[:1])
        filler = self._row(seq, int(own[0]))
        none = filler if self.gathers else self.n_kv
        self._set_pools(plan, ubatch, filler, none)
        self._set_tokens(plan, ubatch, none)

    def _row(self, seq: SeqPools, cell: int) -> int:
        """Return the row of a sequence's cell, counted over all streams."""
        return seq.stream * self.mctx.kv.kv_size + cell

    def _set_pools(self, plan: PoolPlan, ubatch: UBatch, filler: int, none: int) -> None:
        size, in_ubatch = self.size, {s for s, _ in ubatch.by_seq()}
        rows = [np.empty((0, size), np.int64)]
        members = [*rows]
        for s, seq in plan.seqs.items():
            cells = seq.members(size)
            rows.append(cells + self._row(seq, 0))
            if self.gathers:
                cells = rows[-1]
            elif self.mctx.kv.n_stream > 1 and s not in in_ubatch:
                cells = np.full_like(cells, none)  # cells of an unused stream
            members.append(cells)
        every, n = np.concatenate(rows), plan.is_new.size
        firsts = [seq.first_positions() for seq in plan.seqs.values()]
        write(self.cells, _pad(every[:, -1], self.n_pool, filler))
        shown = np.full((self.n_pool, size), none, np.int32)
        shown[:n] = np.concatenate(members)
        write(self.members, shown)
        new = every[plan.is_new]
        if not new.size:  # a row outside all pools
            new = np.full((1, size), filler, np.int64)
        new = np.concatenate((new, np.repeat(new[-1:], self.n_new - len(new), 0)))
        write(self.new, new.astype(np.int32))
        if self.new_rows is not None:
            write(self.new_rows, new[:, -1].astype(np.int64))
        first = np.concatenate((*firsts, NO_POSITIONS), 1)[:, plan.is_new]
        pos = np.zeros((4, self.n_new), np.int32)
        pos[:, : first.shape[1]] = first
        pos[:, first.shape[1] :] = first[:, -1:] if first.size else 0
        write(self.new_pos, pos.reshape(-1))

    def _set_tokens(self, plan: PoolPlan, ubatch: UBatch, none: int) -> None:
        n_tokens, size = ubatch.n_tokens, self.size
        mask = np.full((n_tokens, self.n_pool), -np.inf, np.float32)
        live = np.full((n_tokens, self.n_sel), -np.inf, np.float32)
        tails = np.full((n_tokens, size - 1), none, np.int32)
        n_slots, all_pos = self.n_top * size, ubatch.pos.reshape(-1, n_tokens)
        for seq_id, mine in _by_first_seq(ubatch):
            seq, pos = plan.seqs[seq_id], all_pos[:, mine]
            n_seen = seq.count_seen(pos, size)[:, None]
            first = plan.first_pools[seq_id]
            numbers = np.arange(seq.starts.size)
            mask[mine, first : first + numbers.size] = np.where(numbers < n_seen, 0, -np.inf)
            slots = np.arange(n_slots)
            live[mine, :n_slots] = np.where(slots < n_seen * size, 0, -np.inf)
            cells, there = seq.find_tails(pos, size)
            cells = cells + (self._row(seq, 0) if self.gathers else 0)
            tails[mine] = np.where(there, cells, none)
            live[mine, n_slots:] = np.where(there, 0, -np.inf)
        write(self.mask, mask.astype(np.float16) if self.mask.type is F16 else mask)
        write(self.live, live)
        write(self.tails, tails)


def _pad(x: Cells, n: int, value: int) -> Ints:
    found = np.full(n, value, np.int32)
    found[: x.size] = x
    return found


def _by_first_seq(ubatch: UBatch) -> Iterator[tuple[int, Cells]]:
    """Yield each sequence that is the first sequence of some tokens, with the tokens' indices."""
    firsts = np.array([ids[0] for ids in ubatch.seq_id])
    for seq_id in dict.fromkeys(firsts.tolist()):
        yield seq_id, np.flatnonzero(firsts == seq_id)
