"""Prefix cache: tokens of a context's sequences, so that no prompt is computed twice.

Keys and values remain in the cells of their sequences, per token. Snapshots hold recurrent states
and windows, which cannot be rolled back token by token."""

from __future__ import annotations

import logging
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from ggml_py._moved import Former
from ggml_py.errors import ContextError
from llama_py.batch import END, F32, Batch, Wanted
from llama_py.context import Context
from llama_py.context.state import Restorable
from llama_py.decoding.prefix_cache.budget import MIB, CacheBudget, SavedState, byte_limit
from llama_py.decoding.prefix_cache.report import PrefixMatch
from llama_py.decoding.prefix_cache.snapshots import At, Holder, SnapshotPlan, Snapshots
from llama_py.decoding.prefix_cache.tree import Tree, common
from llama_py.hparams.cparams import CParams
from llama_py.memory.io import StateReader, StateWriter
from llama_py.params import ContextParams

log = logging.getLogger("llama_py")


class CachedContext(Restorable, Protocol):
    """Interface of the cached context, `llama_py.Context`."""

    params: ContextParams
    cparams: CParams

    @property
    def epoch(self) -> int: ...

    def decode(
        self,
        tokens: Sequence[int] | Batch,
        logits: Wanted = "last",
        seq_id: int = 0,
        copy: bool = True,
    ) -> F32: ...

    def adapter_key(self, seq_id: int) -> Hashable | None: ...


@dataclass(frozen=True, slots=True)
class _StartPosition:
    """The position to continue a prompt from: after n tokens, with keys and values of `holder`
    (None: from the start) and a snapshot, or without one the holder's own state."""

    n: int = 0
    holder: Holder | None = None
    snapshot: SavedState | None = None


@dataclass(slots=True)
class _Going:
    """A sequence with known tokens that is decoded token by token.

    epoch   the context's epoch, which any other computation changes
    n_free  tokens before a snapshot is due
    """

    seq_id: int
    epoch: int
    kind: Hashable
    n_free: int


class PrefixCache:
    """The tokens of all sequences of a context, and the states to return to.

        cache = PrefixCache.for_context(ctx)
        match = cache.start(ids)            # reuse known tokens
        cache.decode(ids[match.n_reused:])  # compute the rest, with snapshots

    budget     host memory for snapshots and whole states: `cache_ram` MiB
    tree       tokens, with the sequences and states that have them
    snapshots  states at nodes of the tree
    """

    def __init__(self, ctx: CachedContext) -> None:
        self.ctx = ctx
        p, memory = ctx.params, ctx.memory
        self.budget = CacheBudget(byte_limit(p.cache_ram, memory.cache_bytes(p.ctx_checkpoints)))
        self.tree: Tree[Holder, SavedState] = Tree(not memory.by_token, self.budget.drop)
        self.snapshots = Snapshots(memory, p, self.budget, self.tree)
        self._plans: dict[int, SnapshotPlan] = {}
        self._going: _Going | None = None
        self.worth = 2  # a sequence that loses more than 1/worth of its tokens is saved
        self.shifted: set[int] = set()  # sequences that lost tokens in their middle

    @classmethod
    def for_context(cls, ctx: Context) -> PrefixCache:
        """Return the cache of a context."""
        return ctx.companion(PrefixCache, PrefixCache)

    @property
    def host_bytes(self) -> int:
        """Bytes of all states in the cache."""
        return self.budget.size

    def close(self) -> None:
        """Leave a common limit; the states are released with the cache."""
        self.budget.close()

    def start(
        self,
        ids: Sequence[int],
        seq_id: int = 0,
        marks: Iterable[int] | None = None,
        afresh: bool = False,
        at_most: int | None = None,
    ) -> PrefixMatch:
        """Set a sequence to the longest known prefix of a prompt. The caller must decode the rest,
        `ids[n_reused:]`: at least one token, for its logits.

        marks    positions for snapshots, where other prompts may diverge; None: the position before
                 the last token, or further back by the memory's `n_back`
        afresh   reuse no token
        at_most  reuse at most this number of tokens
        """
        ids, memory = [int(id) for id in ids], self.ctx.memory
        self._check()
        kind = self._kind(seq_id)
        most = 0 if kind is None else max(len(ids) - 1, 0)
        most = most if at_most is None else min(most, at_most)
        usable = [] if afresh else ids[:most]
        path, n_same = self.tree.match(usable, kind)
        own = self.tokens(seq_id)
        n_own = common(own, usable)
        found = self._find_start(path, n_same, seq_id)
        saved = self._save_state(seq_id) if self.worth * (len(own) - n_own) > len(own) else None
        if found.n <= n_own and self._goes_back(seq_id, n_own):
            found = _StartPosition(n_own, seq_id)
        else:
            found = self._copy_state(found, seq_id)
        self.hold(ids[: found.n], seq_id)
        self.shifted.discard(seq_id)
        self._keep(saved)
        marks = [most - memory.n_back] if marks is None else marks
        self._plans[seq_id] = self.snapshots.plan(found.n, len(ids), {*marks, n_same})
        match = PrefixMatch(
            len(ids), n_same, found.n, _source(found, seq_id), not memory.supports_rollback
        )
        log.info("prefix cache: sequence %d: %s; %s", seq_id, match, self)
        return match

    def decode(self, ids: Sequence[int], seq_id: int = 0) -> F32:
        """Continue a sequence. Return the last token's logits F32 [1, n_vocab], which are valid
        until the next computation of the context.

        If the sequence has known tokens only, its new tokens are split at due snapshots.
        """
        going, self._going = self._going, None
        fits = going is not None and going.seq_id == seq_id and len(ids) == 1 <= going.n_free
        if going is not None and fits and self._is_all(seq_id):
            logits = self.ctx.decode(ids, "last", seq_id, copy=False)
            if self.ctx.epoch == going.epoch:
                self.tree.grow(seq_id, [int(ids[0])], going.kind)
                going.n_free -= 1
                self._going = going
            else:
                self._note(ids, seq_id)
            return logits
        known = self.is_tracked(seq_id)
        held = self.ctx.memory.seq_pos_max(seq_id) + 1
        fits = len(ids) <= self.ctx.cparams.n_ctx_seq - held  # else it is refused before the cuts
        while known and fits:
            n = self.until_snapshot(seq_id)
            if n is None or n >= len(ids):
                break
            self.ctx.decode(_batch(ids[:n], seq_id), "none")
            self.advance(ids[:n], seq_id)
            ids = ids[n:]
        logits = self.ctx.decode(_batch(ids, seq_id), copy=False)
        if known:
            self.advance(ids, seq_id)
            self._going = self._find_continuation(seq_id)
        return logits

    def _is_all(self, seq_id: int) -> bool:
        """Return True if a sequence that only grew has no unknown tokens, as `Context.decode` may
        be called without the cache."""
        node = self.tree.ends.get(seq_id)
        return node is not None and node.end == self.ctx.memory.seq_pos_max(seq_id) + 1

    def _find_continuation(self, seq_id: int) -> _Going | None:
        kind = self._kind(seq_id)
        if kind is None:
            return None
        n = self.until_snapshot(seq_id)
        return _Going(seq_id, self.ctx.epoch, kind, END if n is None else n - 1)

    def _note(self, ids: Sequence[int], seq_id: int) -> None:
        """Add decoded tokens to the tree, unless earlier tokens of the sequence are unknown."""
        node, kind = self.tree.ends.get(seq_id), self._kind(seq_id)
        if node is None or kind is None or self.tree.kinds[seq_id] != kind:
            return
        held = self.ctx.memory.seq_pos_max(seq_id) + 1
        if node.end + len(ids) == held and self._n_known(seq_id) == node.end:
            self.advance(ids, seq_id)

    def is_tracked(self, seq_id: int) -> bool:
        """Return True if the sequence has known tokens only, so that `advance` may add more."""
        self._check(seq_id)
        held = self.ctx.memory.seq_pos_max(seq_id) + 1
        return self._n_known(seq_id) == held and self._kind(seq_id) is not None

    def until_snapshot(self, seq_id: int) -> int | None:
        """Return how many tokens may be decoded before the next `advance`; None for any number."""
        at = self._n_known(seq_id)
        following = self._plans.get(seq_id, SnapshotPlan()).following(at)
        return None if following is None else following - at

    def advance(self, ids: Sequence[int], seq_id: int) -> None:
        """Note that these tokens were decoded after a sequence's tokens."""
        self._going = None  # the next snapshot has another position
        node = self.tree.grow(seq_id, [int(id) for id in ids], self._kind(seq_id))
        plan = self._plans.get(seq_id)
        self.ctx.memory.intact[seq_id] = END
        if plan is not None and plan.has(node.end):
            self.snapshots.take(seq_id, node, node.end in plan.marks)

    def hold(self, ids: Sequence[int], seq_id: int) -> None:
        """Note that a sequence has these tokens, up to the end of its memory."""
        kind, held = self._kind(seq_id), self.ctx.memory.seq_pos_max(seq_id) + 1
        if kind is None or self.tree.kinds.get(seq_id, kind) != kind:  # changed during decoding
            self.tree.release(seq_id)
            return
        self.tree.hold(seq_id, [int(id) for id in ids[:held]], kind)
        self.ctx.memory.intact[seq_id] = END

    def tokens(self, seq_id: int) -> list[int]:
        """Return the known tokens of a sequence."""
        node = self.tree.ends.get(seq_id)
        return [] if node is None else self.tree.tokens(node)[: self._n_known(seq_id)]

    def mark(self, seq_id: int, pos: int) -> None:
        """Plan a snapshot at a position, not computed yet, where another prompt diverges."""
        if seq_id in self._plans and self.snapshots.wanted:
            self._plans[seq_id].marks.add(pos)

    def invalidate(self, seq_id: int, n: int) -> None:
        """Drop all after n tokens of a sequence, for all users, and empty the sequence."""
        for at, state in self.snapshots.find_states(seq_id):
            if at.end > n:
                self.snapshots.drop(at, state)
        self.clear(seq_id)

    def offload(self, seq_id: int) -> None:
        """Free the cells of a sequence and save its state in host memory, if the budget allows."""
        self._check()
        saved = self._save_state(seq_id)
        self.clear(seq_id)
        self._keep(saved)

    def clear(self, seq_id: int) -> None:
        """Free the cells of a sequence; its snapshots remain."""
        self.ctx.memory.seq_rm(seq_id)
        self._plans.pop(seq_id, None)
        self.shifted.discard(seq_id)
        self.tree.release(seq_id)

    def shorten(self, seq_id: int, n: int) -> None:
        """Free a sequence's tokens after the first n. If its memory cannot return to them, free all
        tokens if another sequence has the first n."""
        ids = self.tokens(seq_id)[:n]
        if self._goes_back(seq_id, n):
            self.hold(ids, seq_id)
        elif any(self.tokens(s)[:n] == ids for s in self._sequences() if s != seq_id):
            self.clear(seq_id)

    def transfer_from(self, other: PrefixCache) -> None:
        """Copy the sequences of another, smaller context of the model."""
        for seq_id in other._sequences():
            tokens, io = other.tokens(seq_id), StateWriter()
            other.ctx.memory.state_write(io, seq_id)
            self.ctx.memory.state_read(StateReader(io.bytes()), seq_id)
            self.hold(tokens, seq_id)
            for at, state in other.snapshots.find_states(seq_id):
                node = self.tree.reach(tokens[: at.end], self.tree.kinds[seq_id])
                self.snapshots.keep(node, state.data, state.marked)

    def __repr__(self) -> str:
        return f"{self.budget.size / MIB:.2f} MiB of checkpoints"

    def _sequences(self) -> list[int]:
        """Return the sequences with known tokens."""
        return [s for s in self.tree.ends if isinstance(s, int)]

    def _kind(self, seq_id: int) -> Hashable | None:
        """Return the key of a sequence's computations, or None if they cannot be reused."""
        return None if self.ctx.model.has_encoder else self.ctx.adapter_key(seq_id)

    def _n_known(self, seq_id: int) -> int:
        """Return the number of a sequence's tokens that certainly agree with the tree."""
        node, memory = self.tree.ends.get(seq_id), self.ctx.memory
        if node is None:
            return 0
        return min(node.end, memory.intact.get(seq_id, 0), memory.seq_pos_max(seq_id) + 1)

    def _check(self, *seqs: int) -> None:
        """Update sequences (default: all) after changes of memory outside the cache."""
        for seq_id in seqs or self._sequences():
            node, kind = self.tree.ends.get(seq_id), self._kind(seq_id)
            if node is not None and self.tree.kinds[seq_id] != kind:
                self.tree.release(seq_id)
            elif node is not None and (n := self._n_known(seq_id)) < node.end:
                self.tree.hold(seq_id, self.tree.tokens(node)[:n], kind)
                self.ctx.memory.intact[seq_id] = END

    def _find_start(self, path: list[At], n_same: int, seq_id: int) -> _StartPosition:
        """Return the furthest position to continue a prompt with this path from."""
        if self.ctx.memory.supports_rollback:
            return _StartPosition(n_same, _nearest(path[-1], seq_id)) if path else _StartPosition()
        for node in reversed(path):
            if node.end <= n_same and node.state is not None:
                return _StartPosition(node.end, _nearest(node, seq_id), node.state)
            if node.end <= n_same and (there := [h for h in node.holders if self._is_at(h, node)]):
                return _StartPosition(node.end, there[0])
        return _StartPosition()

    def _is_at(self, holder: Holder, node: At) -> bool:
        """Return True if a holder has the state at a node."""
        if self.tree.ends[holder] is not node:
            return False
        return isinstance(holder, SavedState) or self.ctx.memory.seq_pos_max(holder) + 1 == node.end

    def _goes_back(self, seq_id: int, n: int) -> bool:
        """Roll a sequence back to n tokens; False if that is not possible."""
        memory = self.ctx.memory
        if memory.seq_pos_max(seq_id) + 1 == n:
            return True
        return memory.seq_rm(seq_id, n) if n else memory.seq_rm(seq_id)

    def _copy_state(self, found: _StartPosition, seq_id: int) -> _StartPosition:
        """Copy a state to a sequence, to continue there; clear the sequence if cells are short."""
        memory, holder = self.ctx.memory, found.holder
        data = None if found.snapshot is None else found.snapshot.data
        if isinstance(holder, int) and data is None and not memory.supports_rollback:
            data = self.snapshots.serialize(holder)
        for used in (found.snapshot, holder):
            if isinstance(used, SavedState):
                self.budget.use(used)
        try:
            if isinstance(holder, SavedState):
                memory.state_read(StateReader(holder.data), seq_id)
            elif holder is None:
                memory.seq_rm(seq_id)
            elif holder != seq_id:
                memory.seq_copy_prefix(holder, seq_id, found.n)
            if data is not None:
                memory.state_read(StateReader(data), seq_id, partial=True)
            if memory.seq_rm(seq_id, found.n):
                return found
        except ContextError as e:
            log.info("prefix cache: sequence %d cannot restore a cached prefix: %s", seq_id, e)
        memory.seq_rm(seq_id)
        return _StartPosition()

    def _save_state(self, seq_id: int) -> SavedState | None:
        """Return the whole state of a sequence, which now also holds its tokens; None if not
        needed. It counts only after `_keep`, so that it evicts no state still in use."""
        node, memory = self.tree.ends.get(seq_id), self.ctx.memory
        if node is None or node.end == 0 or not self._is_at(seq_id, node):
            return None
        if self.tree.lonely:
            self.snapshots.take(seq_id, node, marked=False)
            return None
        if len(node.holders) > 1 or not self.budget.allows(1):
            return None
        io = StateWriter()
        memory.state_write(io, seq_id)
        one = SavedState(io.bytes(), self.tree.release)
        self.tree.hold(one, self.tree.tokens(node), self.tree.kinds[seq_id])
        return one

    def _keep(self, saved: SavedState | None) -> None:
        """Add a saved state to the budget, or release it if it is too large."""
        if saved is not None and not self.budget.add(saved):
            self.tree.release(saved)

    of = Former("for_context")
    put_away = Former("offload")
    spoil = Former("invalidate")
    take_over = Former("transfer_from")
    knows = Former("is_tracked")


def _batch(ids: Sequence[int], seq_id: int) -> Batch:
    return Batch(ids, seq_ids=[(seq_id,)] * len(ids))


def _nearest(node: At, seq_id: int) -> Holder | None:
    """Return the holder to copy from: the sequence itself, another, or host memory."""
    return min(node.holders, key=lambda h: (h != seq_id, isinstance(h, SavedState)), default=None)


def _source(found: _StartPosition, seq_id: int) -> str:
    if found.n == 0:
        return ""
    if isinstance(found.holder, int):
        return "this sequence" if found.holder == seq_id else f"sequence {found.holder}"
    return "host memory"
