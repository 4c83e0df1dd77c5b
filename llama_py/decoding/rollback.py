"""Removal of the last tokens of sequences, by `seq_rm` or from a checkpoint."""

from __future__ import annotations

from llama_py.context import Context


class Rollback:
    """Removal of rejected tokens. A checkpoint is created only if states cannot roll back far
    enough: it costs a copy of the states, and accepted tokens after it are computed again."""

    def __init__(self, ctx: Context) -> None:
        self.ctx = ctx
        self._saved: dict[int, tuple[int, bytes]] = {}  # position and state by sequence
        self.n_checkpoints = 0

    def mark(self, seq_id: int, n: int) -> None:
        """Prepare for removing up to n of the tokens decoded next."""
        self._saved.pop(seq_id, None)
        ctx = self.ctx
        if n and ctx.memory.recr is not None and n > ctx.cparams.n_rs_seq:
            at = ctx.memory.seq_pos_max(seq_id) + 1
            self._saved[seq_id] = at, ctx.save_state(seq_id, partial=True)
            self.n_checkpoints += 1

    def truncate(self, seq_id: int, pos: int) -> int:
        """Keep only positions before `pos`, or fewer, and return the sequence's next position.

        0 if it must start again: another decode changed its states after the checkpoint.
        """
        memory = self.ctx.memory
        end = memory.seq_pos_max(seq_id) + 1
        if end <= pos:
            return end
        if memory.seq_rm(seq_id, pos, -1):
            return pos
        if seq_id not in self._saved:
            memory.seq_rm(seq_id)
            return 0
        at, state = self._saved.pop(seq_id)
        self.ctx.load_state(state, seq_id, partial=True)
        memory.seq_rm(seq_id, at, -1)
        return at
