"""Two KV caches: for layers that see all tokens, and, smaller, for those with a window
(llama-kv-cache-iswa.cpp)."""

from __future__ import annotations

from collections.abc import Callable

from ggml_py.errors import ContextError
from llama_py.batch import BatchSplitter, UBatch
from llama_py.memory.io import StateReader, StateWriter
from llama_py.memory.kv import KVCache, KVCacheContext
from llama_py.memory.kv_slots import span


class KVCacheISWA:
    """`base` keeps all positions, `swa` those that tokens to come may still see."""

    def __init__(self, base: KVCache, swa: KVCache) -> None:
        self.base = base
        self.swa = swa

    def init_batch(
        self, splitter: BatchSplitter, n_ubatch: int, embd_all: bool = False
    ) -> KVCacheISWAContext:
        if self.base.n_stream > 1:
            return self._init(_all(splitter, lambda: splitter.split_equal(n_ubatch, True)))
        try:
            return self._init(_all(splitter, lambda: splitter.split_simple(n_ubatch)))
        except ContextError:
            # tokens of equal positions together may need fewer cells of the window
            return self._init(_all(splitter, lambda: splitter.split_equal(n_ubatch, False)))

    def _init(self, ubatches: list[UBatch]) -> KVCacheISWAContext:
        caches = (self.base, self.swa)
        return KVCacheISWAContext(
            *(KVCacheContext(kv, kv.prepare(ubatches), ubatches) for kv in caches)
        )

    def init_full(self, n_seqs: int | None = None) -> KVCacheISWAContext:
        return KVCacheISWAContext(self.base.init_full(n_seqs), self.swa.init_full(n_seqs))

    def discard(self, ubatch: UBatch) -> list[int]:
        return self.base.discard(ubatch) + self.swa.discard(ubatch)

    def clear(self, data: bool = True) -> None:
        self.base.clear(data)
        self.swa.clear(data)

    def seq_rm(self, seq_id: int, p0: int = -1, p1: int = -1) -> bool:
        seqs = range(self.base.n_seq_max) if seq_id < 0 else [seq_id]
        if not all(self._can_go_back(s, *span(p0, p1)) for s in seqs):
            return False
        return self.base.seq_rm(seq_id, p0, p1) and self.swa.seq_rm(seq_id, p0, p1)

    def _can_go_back(self, seq_id: int, p0: int, p1: int) -> bool:
        """Whether the window of a token at p0 is still kept, if the sequence will go on there."""
        if p0 == 0 or not p0 <= self.base.seq_pos_max(seq_id) < p1:
            return True
        first = max(self.base.seq_pos_min(seq_id), p0 - self.swa.n_swa + 1)
        return 0 <= self.swa.seq_pos_min(seq_id) <= first

    def seq_cp(self, src: int, dst: int, p0: int = -1, p1: int = -1) -> None:
        self.base.seq_cp(src, dst, p0, p1)
        self.swa.seq_cp(src, dst, p0, p1)

    def seq_keep(self, seq_id: int) -> None:
        self.base.seq_keep(seq_id)
        self.swa.seq_keep(seq_id)

    def _check_shift(self, what: str) -> None:
        if self.base.kv_size != self.swa.kv_size:
            raise ContextError(f"{what}: positions of a model with attention windows cannot move")

    def seq_add(self, seq_id: int, p0: int, p1: int, delta: int) -> None:
        self._check_shift("seq_add")
        self.base.seq_add(seq_id, p0, p1, delta)
        self.swa.seq_add(seq_id, p0, p1, delta)

    def seq_div(self, seq_id: int, p0: int, p1: int, d: int) -> None:
        self._check_shift("seq_div")
        self.base.seq_div(seq_id, p0, p1, d)
        self.swa.seq_div(seq_id, p0, p1, d)

    def seq_pos_min(self, seq_id: int) -> int:
        return self.swa.seq_pos_min(seq_id)

    def seq_pos_max(self, seq_id: int) -> int:
        return self.swa.seq_pos_max(seq_id)

    def kv_caches(self) -> list[KVCache]:
        return [self.base, self.swa]

    def memory_breakdown(self) -> dict[str, int]:
        sizes = self.base.memory_breakdown()
        for name, size in self.swa.memory_breakdown().items():
            sizes[name] = sizes.get(name, 0) + size
        return sizes

    def layout(self) -> str:
        return f"{self.base.layout()} + window {self.swa.n_swa} {self.swa.layout()}"

    def state_write(self, io: StateWriter, seq_id: int = -1, partial: bool = False) -> None:
        if not partial:
            self.base.state_write(io, seq_id)
        self.swa.state_write(io, seq_id)

    def state_read(self, io: StateReader, seq_id: int = -1, partial: bool = False) -> None:
        try:
            if not partial:
                self.base.state_read(io, seq_id)
            self.swa.state_read(io, seq_id)
        except ContextError:  # half a state is none
            self.seq_rm(seq_id)
            raise


def _all(splitter: BatchSplitter, split: Callable[[], UBatch | None]) -> list[UBatch]:
    splitter.split_reset()
    return list(iter(split, None))


class KVCacheISWAContext:
    """A batch's ubatches in both caches (llama_kv_cache_iswa_context)."""

    def __init__(self, base: KVCacheContext, swa: KVCacheContext) -> None:
        self.base = base
        self.swa = swa

    def next(self) -> bool:
        self.base.next()
        return self.swa.next()

    def apply(self) -> None:
        self.base.apply()
        self.swa.apply()

    def get_ubatch(self) -> UBatch:
        return self.base.get_ubatch()

    def get_base(self) -> KVCacheContext:
        return self.base

    def get_swa(self) -> KVCacheContext:
        return self.swa
