"""A context without kernels whose results depend on all that its memory shows, and on nothing else:
for tests of what sequences hold. Integers in float32, so that results are exact.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ggml_py.tensor import Tensor
from ggml_py.types import F32
from llama_py.batch import Batch, UBatch
from llama_py.batch.splitter import BatchSplitter
from llama_py.context.next_token import NextTokenPath, next_token_path
from llama_py.decoding.prefix_cache import PrefixCache
from llama_py.hparams import HParams
from llama_py.hparams.cparams import CParams
from llama_py.hparams.layer_shape import Window
from llama_py.memory import GroupContext, Placing, create_memory
from llama_py.memory.base import write_part
from llama_py.memory.recurrent import RecurrentContext
from llama_py.memory.specs import Index, KVCacheSpec, MemorySpecs, StateSpec
from llama_py.params import ContextParams
from tests.support.graph_models import load
from tests.support.host_device import HostDevice

N_VOCAB, P = 6, 65521
ALL, STATE = KVCacheSpec(2, 8, 4), StateSpec(3, 5)
NEAR, CHUNK = KVCacheSpec(1, 8, 4, Window(5)), KVCacheSpec(1, 8, 4, Window(4, "chunked"))

KINDS: dict[str, tuple[MemorySpecs, ...]] = {
    "kv": ((ALL,), (ALL,)),
    "index": ((KVCacheSpec(1, 24, 0), Index(8)),),
    "window": ((ALL,), (NEAR,)),
    "windows only": ((CHUNK,), (NEAR,)),
    "recurrent": ((STATE,), (STATE,)),
    "hybrid": ((ALL,), (STATE,)),
    "both in one layer": ((ALL, STATE), (ALL, STATE)),
    "everything": ((ALL, STATE), (NEAR,), (CHUNK,), (KVCacheSpec(1, 24, 0), Index(8))),
}


class Toy:
    """What `PrefixCache` needs of a context; the logits of a token are one number.

    n_decoded  tokens that were computed
    """

    def __init__(self, kind: str, fill: int = 0, unified: bool = False, **options: Any) -> None:
        self.kind, self.n_decoded = kind, 0
        self.model: Any = SimpleNamespace(has_encoder=False, arch="toy", fingerprint=kind)
        self.params = ContextParams(**{"n_seq_max": 3, "n_ubatch": 8, **options})
        p = self.params
        self.cparams = CParams.resolve(
            _hparams(),
            ContextParams(
                n_ctx=256 if unified else 256 * p.n_seq_max,
                n_seq_max=p.n_seq_max,
                n_ubatch=p.n_ubatch,
                kv_unified=unified,
                n_rs_seq=p.n_rs_seq,
            ),
        )
        how = Placing(self.cparams, lambda _: HostDevice(), F32, F32)
        self.memory = create_memory(dict(enumerate(KINDS[kind])), how)
        for part in self.memory.parts:
            for _, buffer in part.buffers:
                buffer.clear(fill)
        self._next: NextTokenPath | None = None
        self.reuse = PrefixCache(self)

    @property
    def epoch(self) -> int:
        return self.memory.changes

    def adapter_key(self, seq_id: int) -> tuple[()]:
        return ()

    def decode(
        self,
        tokens: Batch | Sequence[int],
        logits: Any = "last",
        seq_id: int = 0,
        copy: bool = True,
    ) -> NDArray[np.float32]:
        before, self._next = self._next, None
        if before is not None and before.epoch == self.epoch:
            ubatch = before.next(tokens, logits, seq_id)
            if ubatch is not None:
                before.mctx.follow(ubatch)
                before.ubatch, self._next = ubatch, before
                return self._run(before.mctx, ubatch)[:, None]
        if not isinstance(tokens, Batch):
            tokens = Batch(tokens, seq_ids=[(seq_id,)] * len(tokens))
        splitter = BatchSplitter(
            tokens,
            n_vocab=N_VOCAB,
            n_embd=4,
            n_seq_max=self.params.n_seq_max,
            memory=self.memory,
            outputs=logits,
        )
        mctx = self.memory.init_batch(splitter, self.params.n_ubatch)
        found = np.zeros(splitter.n_tokens, np.float32)
        while True:
            mctx.apply()
            ubatch = mctx.get_ubatch()
            found[ubatch.batch_idxs] = self._run(mctx, ubatch)
            if not mctx.next():
                break
        self._next = next_token_path(splitter, mctx, self.epoch, N_VOCAB)
        return found[splitter.output][:, None]

    def _run(self, mctx: GroupContext, ubatch: UBatch) -> NDArray[np.float32]:
        self.n_decoded += ubatch.n_tokens
        states = self._states(mctx, ubatch)
        found = []
        for i in range(ubatch.n_tokens):
            (seq_id,), pos = ubatch.seq_id[i], int(ubatch.pos[i])
            assert ubatch.token is not None
            state, value = states.get(seq_id, 0), int(ubatch.token[i]) + 1
            seen = [self._seen(name, seq_id, pos) for name in self.memory.caches]
            state, out = step(value, pos, state, seen)
            if seq_id in states:
                states[seq_id] = state
            for name in self.memory.caches:
                self._write(mctx, name, ubatch, i, out)
            found.append(out)
        self._write_states(mctx, ubatch, states)
        return np.array(found, np.float32)

    def _seen(self, name: str, seq_id: int, pos: int) -> list[tuple[int, int]]:
        """The cells of a cache that a token at pos attends to, by position."""
        kv = self.memory.caches[name]
        cells = kv.cells[kv.stream_index(seq_id)]
        mine = cells.seq[seq_id] & (cells.pos >= 0) & (cells.pos < pos)
        if kv.window is not None:
            mine &= ~kv.window.hides(cells.pos, pos)
        k = next(iter(kv.tensors.k.values()))
        rows = k.numpy()[0, kv.stream_index(seq_id), :, -1]
        return sorted((int(cells.pos[c]), int(rows[c])) for c in np.flatnonzero(mine))

    def _write(self, mctx: GroupContext, name: str, ubatch: UBatch, i: int, value: int) -> None:
        kv, place = self.memory.caches[name], mctx.kv(name).place
        n = ubatch.n_tokens // len(place.strm)
        for t in (*kv.tensors.k.values(), *kv.tensors.v.values()):
            row = place.strm[i // n] * kv.kv_size + int(place.idxs[i // n][i % n])
            _set_row(t, row, value)

    def _states(self, mctx: GroupContext, ubatch: UBatch) -> dict[int, int]:
        """By sequence of the ubatch, the state that its graph would read."""
        if self.memory.recr is None:
            return {}
        part = mctx.states(RecurrentContext)
        self._zero(part.get_rs_z())
        seqs = [ids[0] for ids in ubatch.seq_id[:: ubatch.n_seq_tokens]]
        return {s: self._row(part.s_copy(i)) for i, s in enumerate(seqs)}

    def _row(self, row: int) -> int:
        assert self.memory.recr is not None
        values = {int(v) for t in self.memory.recr.all_tensors() for v in t.numpy()[0, 0, row]}
        assert len(values) == 1, values
        return values.pop()

    def _zero(self, row: int) -> None:
        assert self.memory.recr is not None
        if row >= 0:
            for t in self.memory.recr.all_tensors():
                _set_row(t, row, 0)

    def _write_states(self, mctx: GroupContext, ubatch: UBatch, states: dict[int, int]) -> None:
        if self.memory.recr is None:
            return
        part, n = mctx.states(RecurrentContext), ubatch.n_seqs
        moved = {part.get_head() + i: self._row(part.s_copy(i)) for i in range(n, part.get_n_rs())}
        for t in self.memory.recr.all_tensors():
            for row, value in moved.items():
                _set_row(t, row, value)
            for i, ids in enumerate(ubatch.seq_id[:: ubatch.n_seq_tokens]):
                _set_row(t, part.get_head() + i, states[ids[0]])


@cache
def _hparams() -> HParams:
    return load("llama-dense").hparams


def _set_row(t: Tensor, row: int, value: int) -> None:
    size = t.ne[0]
    write_part(t, row * t.nb[1], np.full(size, value, np.float32).view(np.uint8))


def step(value: int, pos: int, state: int, seen: list[list[tuple[int, int]]]) -> tuple[int, int]:
    """A token's new state and result, by what it sees in each cache."""
    state = (state * 31 + value * 7 + pos + 1) % P
    out = state + value
    for cells in seen:
        part = 0
        for at, row in cells:
            part = (part * 17 + row * 5 + at) % P
        out += part
    return state, out % P


def expected(kind: str, ids: Sequence[int]) -> int:
    """The result of the last of these tokens, whatever the memory did."""
    return _results(kind, tuple(ids))[-1]


@cache
def _results(kind: str, ids: tuple[int, ...]) -> tuple[int, ...]:
    kept = [one for layer in KINDS[kind] for one in layer]
    recurrent = any(isinstance(one, StateSpec) for one in kept)
    caches = {
        (isinstance(one, Index), getattr(one, "window", None))
        for one in kept
        if not isinstance(one, StateSpec)
    }
    state, found = 0, list[int]()
    for pos, id in enumerate(ids):
        seen = [
            [(p, found[p]) for p in range(pos) if window is None or not window.hides(p, pos)]
            for _, window in caches
        ]
        new, out = step(id + 1, pos, state, seen)
        state = new if recurrent else 0
        found.append(out)
    return tuple(found)
