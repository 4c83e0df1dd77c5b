"""Snapshots of memory that cannot be rolled back token by token."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass, field

from llama_py.decoding.prefix_cache.budget import MIB, CacheBudget, SavedState
from llama_py.decoding.prefix_cache.tree import TokenRun, Tree
from llama_py.memory import MemoryGroup
from llama_py.memory.io import StateWriter
from llama_py.params import ContextParams

log = logging.getLogger("llama_py")

Holder = int | SavedState  # a sequence, or the whole state of one in host memory
At = TokenRun[Holder, SavedState]


@dataclass(slots=True)
class SnapshotPlan:
    """Snapshot positions of a sequence: `marks`, and multiples of `step` (0: only marks)."""

    marks: set[int] = field(default_factory=set)
    step: int = 0

    def following(self, pos: int) -> int | None:
        """Return the next position after `pos`, or None."""
        ahead = [m for m in self.marks if m > pos]
        if self.step:
            ahead.append((pos // self.step + 1) * self.step)
        return min(ahead, default=None)

    def has(self, pos: int) -> bool:
        return pos in self.marks or (self.step > 0 and pos % self.step == 0)


class Snapshots:
    """Takes snapshots, and limits them per sequence: `ctx_checkpoints`."""

    def __init__(
        self,
        memory: MemoryGroup,
        p: ContextParams,
        budget: CacheBudget,
        tree: Tree[Holder, SavedState],
    ) -> None:
        self.memory, self.budget, self.tree = memory, budget, tree
        self.most, self.step = p.ctx_checkpoints, p.checkpoint_min_step
        self.wanted = not memory.supports_rollback and self.most > 0 and budget.allows(1)

    def plan(self, n: int, n_tokens: int, marks: Iterable[int]) -> SnapshotPlan:
        """Plan snapshots for a prompt's tokens from n on; long prompts have a larger step, so that
        early snapshots are not evicted."""
        if not self.wanted:
            return SnapshotPlan()
        step = self.step
        while step and (n_tokens - n) // step > self.most:
            step *= 2
        return SnapshotPlan({m for m in marks if n < m < n_tokens}, step)

    def serialize(self, seq_id: int) -> bytes:
        """Return the bytes of a snapshot of a sequence's current state."""
        io = StateWriter()
        self.memory.state_write(io, seq_id, partial=True)
        return io.bytes()

    def find_states(self, seq_id: int) -> list[tuple[At, SavedState]]:
        """Return the states that a sequence can return to, the last one first."""
        end = self.tree.ends.get(seq_id)
        path = () if end is None else end.path()
        return [(node, node.state) for node in path if node.state is not None]

    def take(self, seq_id: int, at: At, marked: bool) -> None:
        """Save the state of a sequence at its end node."""
        if self.wanted:
            data = self.serialize(seq_id) if at.state is None else at.state.data
            self.keep(at, data, marked)

    def keep(self, at: At, data: bytes, marked: bool) -> None:
        """Save these bytes as the state of a node, unless it has a state."""
        if at.state is not None:
            at.state.marked |= marked
        if at.state is not None or not self.wanted:
            return
        one = SavedState(data, lambda _: self._lose(at), marked)
        if not self.budget.allows(len(data)):
            self.wanted = False
            log.warning(
                "a checkpoint needs %.1f MiB, more than cache_ram; checkpoints are disabled for "
                "this context, so prompts may be processed again; raise cache_ram (--cache-ram)",
                len(data) / MIB,
            )
            return
        at.state = one
        self.budget.add(one)
        self._thin(at)

    def _lose(self, at: At) -> None:
        at.state = None
        self.tree.prune(at)

    def _thin(self, at: At) -> None:
        """Drop surplus snapshots of a sequence: smallest resulting gaps first,
        marked snapshots last."""
        kept = [(node, node.state) for node in at.path() if node.state is not None]
        while len(kept) > self.most:
            ends = [node.end for node, _ in kept] + [0]
            i = min(
                range(1, len(kept)) if len(kept) > 1 else (0,),
                key=lambda i: (kept[i][1].marked, ends[i - 1] - ends[i + 1]),
            )
            self.drop(*kept.pop(i))

    def drop(self, at: At, state: SavedState) -> None:
        """Keep it no longer."""
        self.budget.drop(state)
        self._lose(at)
