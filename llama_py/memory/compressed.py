"""Compressed keys: one key per block of consecutive tokens of a sequence, computed when the block
is complete, with snapshots to roll back to (llama-kv-cache-dsv4.cpp)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from ggml_py.errors import ContextError
from ggml_py.tensor import Tensor
from llama_py.batch import UBatch
from llama_py.batch.splitter import BatchSplitter
from llama_py.memory.base import log, mib
from llama_py.memory.compressed_plan import Plan, largest_plan, make_plan
from llama_py.memory.compressed_tensors import CompressedTensors
from llama_py.memory.io import StateReader, StateWriter
from llama_py.memory.part import NumberedStates, StateWalk, check_seqs
from llama_py.memory.recurrent_cells import steps_of_one


@dataclass(slots=True)
class StoredRange:
    """Stored range of one sequence.

    pos     last position, -1 if it is empty
    n_keys  number of tokens with valid keys
    n_dirty   number of tokens that may have keys
    n_back  number of tokens that can be rolled back
    back    number of tokens rolled back: the plane that has its state
    """

    pos: int = -1
    n_keys: int = 0
    n_dirty: int = 0
    n_back: int = 0
    back: int = 0


class CompressedMemory(NumberedStates):
    """Memory of compressed keys and states. Each sequence has separate keys and states at the index
    of its id, also if other caches are unified.

    kinds    tensors by type of compressed keys, each for some layers
    n_ctx    positions of a sequence
    plans    plans of the last applied ubatch, by type
    """

    moves_on: ClassVar = False  # positions of tokens determine the positions of keys
    whole_seqs: ClassVar = False
    apart: ClassVar = True

    def __init__(
        self, kinds: Sequence[CompressedTensors], *, size: int, n_ctx: int, n_rs_seq: int
    ) -> None:
        self.kinds = {one.kept.kind: one for one in kinds}
        super().__init__(size, n_rs_seq)
        self.n_ctx = n_ctx
        self.buffers = [b for one in kinds for b in one.buffers]
        self.held = [StoredRange() for _ in range(size)]
        self.plans: dict[str, Plan] = {}
        for one in kinds:
            log.info(
                "llama_kv_cache_dsv4: %s: %7.2f MiB of keys (%6d for each of %2d seqs, %3d layers,"
                " %s), %7.2f MiB of states (%2d rs_seq)",
                one.kept.kind,
                mib(one.keys.list_tensors()),
                one.sizes.n_keys,
                size,
                len(one.kv),
                one.keys.type_k.name,
                mib(one.states()),
                n_rs_seq,
            )

    @property
    def by_token(self) -> bool:
        """True: a partial saved state is without keys."""
        return True

    def all_tensors(self) -> list[Tensor]:
        """Return all tensors of keys and states."""
        return [t for one in self.kinds.values() for t in (*one.keys.list_tensors(), *one.states())]

    def split(self, splitter: BatchSplitter, n_ubatch: int, sequential: bool) -> UBatch | None:
        """Return the next ubatch: equally many tokens per sequence, or one sequence if
        `sequential`. The last tokens, which may be rolled back, are in one ubatch."""
        if splitter.has_cpl:
            raise ContextError(
                "a token belongs to several sequences, but compressed keys belong to one; decode "
                "such tokens as a separate batch that starts these sequences, or decode them for "
                "one sequence and use seq_cp"
            )
        tail = self.n_tail
        if self.size > 1:
            return splitter.split_equal(n_ubatch, True, tail)
        left = splitter.n_tokens - splitter.n_used
        return splitter.split_simple(left - tail if 0 < left - n_ubatch < tail else n_ubatch)

    def place(self, ubatches: list[UBatch]) -> CompressedContext:
        """Find cells for all ubatches; ContextError if they do not fit."""
        for ubatch in ubatches:
            check_seqs(self.size, *ubatch.seq_id_unq)
            self._check_steps(ubatch)
            last = int(ubatch.pos[: ubatch.n_tokens].max())
            if last >= self.n_ctx:
                raise ContextError(
                    f"position must be less than {self.n_ctx}, the positions of a sequence, got "
                    f"{last}; use a larger n_ctx or a shorter prompt"
                )
        return CompressedContext(self, ubatches)

    def _check_steps(self, ubatch: UBatch) -> None:
        for seq_id, where in ubatch.by_seq():
            pos = ubatch.pos[: ubatch.n_tokens][where]
            if steps_of_one(pos) + 1 < pos.size:
                raise ContextError(
                    f"positions of sequence {seq_id} must be consecutive, because this model "
                    "combines several into one key; omit pos, or use consecutive positions"
                )

    def init_full(self, n_seqs: int | None = None) -> CompressedContext:
        return CompressedContext(self, [], min(self.size, n_seqs or self.size))

    def apply_ubatch(self, ubatch: UBatch) -> None:
        """Take the ubatch's place. A sequence that starts does so from zeros."""
        self.applied = ubatch
        for seq_id in ubatch.seq_id_unq:
            held = self.held[seq_id]
            if held.pos < 0:
                for one in self.kinds.values():
                    one.begin(seq_id, held.n_dirty)
                held.back = held.n_dirty = 0
        back = {s: self.held[s].back for s in ubatch.seq_id_unq}
        made: dict[tuple[int, int, bool], Plan] = {}
        plans = {}
        for kind, one in self.kinds.items():  # kinds that differ in dimensions only have the same
            key = one.kept.ratio, one.sizes.n_keys, one.kept.overlap
            plans[kind] = made.get(key) or make_plan(ubatch, one.sizes, back)
            made[key] = plans[kind]
        self.plans = plans
        pos = ubatch.pos[: ubatch.n_tokens]
        for seq_id, where in ubatch.by_seq():
            held, mine = self.held[seq_id], pos[where]
            held.pos = int(mine[-1])
            held.n_keys = held.pos + 1
            held.n_dirty = max(held.n_dirty, held.n_keys)
            held.n_back = min(self.n_rs_seq, steps_of_one(mine) + 1)
            held.back = 0

    def _entry(self, seq_id: int) -> StoredRange | None:
        held = self.held[seq_id]
        return held if held.pos >= 0 else None

    def _forget(self, seq_id: int) -> None:
        """Empty a sequence but keep n_dirty: these keys are zeroed when it starts again."""
        self.held[seq_id] = StoredRange(n_dirty=self.held[seq_id].n_dirty)

    def _rm_elsewhere(self, seq_id: int, p0: int, p1: int) -> bool:
        """Return False for positions before the last, since later keys depend on such positions."""
        held = self.held[seq_id]
        if p0 >= p1:
            return True
        if p1 <= held.pos:
            return False
        held.n_keys = min(held.n_keys, p0)  # a saved state may have been loaded before
        return True

    def _roll_back(self, seq_id: int, back: int) -> bool:
        """Roll back to a snapshot; a second time only after decoding further tokens."""
        held = self.held[seq_id]
        if back > held.n_back:
            return False
        held.pos -= back
        held.n_keys = held.pos + 1
        held.n_back, held.back = 0, back
        return True

    def check_copy(self, src: int, dst: int, p0: int, p1: int) -> None:
        """Raise ContextError for a part of a sequence."""
        check_seqs(self.size, src, dst)
        if p0 > 0 or 0 < p1 + 1 < self.n_ctx:
            raise ContextError(
                f"seq_cp of positions [{p0}, {p1}): compressed keys can only be copied for a "
                "whole sequence; omit p0 and p1"
            )

    def seq_cp(self, src: int, dst: int, p0: int = -1, p1: int = -1) -> None:
        self.check_copy(src, dst, p0, p1)
        if src == dst:
            return
        self._forget(dst)
        held = self.held[src]
        if held.pos >= 0:
            for one in self.kinds.values():
                one.begin(dst, self.held[dst].n_dirty)
                one.copy(src, dst, held.back, held.pos + 1)
            n = held.pos + 1
            self.held[dst] = StoredRange(held.pos, n, n)

    def seq_copy_prefix(self, src: int, dst: int, n: int) -> None:
        """Copy the keys of src's first n tokens to dst; a saved state provides its state."""
        check_seqs(self.size, src, dst)
        self._forget(dst)
        for one in self.kinds.values():
            one.begin(dst, self.held[dst].n_dirty)
            one.copy_keys(src, dst, n)
        self.held[dst] = StoredRange(n_keys=n, n_dirty=n)

    def layout(self) -> str:
        return "compressed " + ", ".join(one.layout() for one in self.kinds.values())

    def _write(self, io: StateWriter, seq_id: int, partial: bool) -> None:
        held = self.held[seq_id]
        for one in self.kinds.values():
            if not partial:
                one.write_keys(io, seq_id, held.pos + 1)
            one.write_state(io, seq_id, held.back)

    def _make_room(self, seq_id: int, partial: bool) -> None:
        n_keys = self.held[seq_id].n_keys if partial else 0
        self._forget(seq_id)
        self.held[seq_id].n_keys = n_keys

    def _read(self, io: StateReader, s: int, pos: int, partial: bool) -> None:
        held = self.held[s]
        if pos >= self.n_ctx:
            raise ContextError(
                f"the state is at position {pos}, but a sequence of this context has "
                f"{self.n_ctx} positions; use a larger n_ctx"
            )
        if partial and held.n_keys <= pos:
            raise ContextError(
                f"the state has no keys of its {pos + 1} tokens, but sequence {s} has keys of "
                f"{held.n_keys}; pass the whole state"
            )
        n_dirty = max(held.n_dirty, pos + 1)
        for one in self.kinds.values():
            if not partial:
                one.begin(s, held.n_dirty)
                one.read_keys(io, s, pos + 1)
            one.read_state(io, s)
        self.held[s] = StoredRange(pos, held.n_keys if partial else pos + 1, n_dirty)


class CompressedContext(StateWalk):
    """A batch's ubatches in a `CompressedMemory`.

    n_seqs  number of sequences, for graphs that are only measured; else 0
    """

    keeps = "compressed keys"
    mem: CompressedMemory

    def __init__(self, mem: CompressedMemory, ubatches: list[UBatch], n_seqs: int = 0) -> None:
        super().__init__(mem, ubatches)
        self.n_seqs = n_seqs

    def plan(self, kind: str, ubatch: UBatch) -> Plan:
        """Return the plan of the last applied ubatch, or the largest one when only measuring."""
        if not self.n_seqs:
            return self.mem.plans[kind]
        return largest_plan(ubatch.n_tokens, ubatch.n_seqs, self.mem.kinds[kind].sizes)

    def get_k(self, kind: str, il: int, ubatch: UBatch) -> Tensor:
        """Return keys of the ubatch's sequences, [n_embd_head, 1, n_keys, n_stream]."""
        seqs = range(self.n_seqs) if self.n_seqs else ubatch.seq_id_unq
        return self.mem.kinds[kind].get_k(il, min(seqs), len(seqs))
