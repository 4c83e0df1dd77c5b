"""Memory of models with both attention and recurrent layers (llama-memory-hybrid.cpp)."""

from __future__ import annotations

from ggml_py.errors import ContextError
from llama_py.batch import BatchSplitter, UBatch
from llama_py.memory.io import StateReader, StateWriter
from llama_py.memory.kv import KVCache, KVCacheContext
from llama_py.memory.recurrent import RecurrentContext, RecurrentMemory


class HybridMemory:
    """A KV cache and a recurrent memory that always hold the same positions."""

    def __init__(self, attn: KVCache, recr: RecurrentMemory) -> None:
        self.attn = attn
        self.recr = recr

    def init_batch(
        self, splitter: BatchSplitter, n_ubatch: int, embd_all: bool = False
    ) -> HybridContext:
        unified = self.attn.n_stream == 1
        ubatches = self.recr.split(splitter, n_ubatch, embd_all, sequential=not unified)
        self.recr.prepare(ubatches)
        attn = KVCacheContext(self.attn, self.attn.prepare(ubatches), ubatches)
        return HybridContext(attn, RecurrentContext(self.recr, ubatches))

    def init_full(self, n_seqs: int | None = None) -> HybridContext:
        return HybridContext(self.attn.init_full(n_seqs), self.recr.init_full(n_seqs))

    def discard(self, ubatch: UBatch) -> list[int]:
        lost = self.recr.discard(ubatch)
        for seq_id in lost:
            self.attn.seq_rm(seq_id)
        return lost

    def clear(self, data: bool = True) -> None:
        self.attn.clear(data)
        self.recr.clear(data)

    def seq_rm(self, seq_id: int, p0: int = -1, p1: int = -1) -> bool:
        # the recurrent part may refuse; the attention part never does
        return self.recr.seq_rm(seq_id, p0, p1) and self.attn.seq_rm(seq_id, p0, p1)

    def seq_cp(self, src: int, dst: int, p0: int = -1, p1: int = -1) -> None:
        self.attn.seq_cp(src, dst, p0, p1)
        self.recr.seq_cp(src, dst, p0, p1)

    def seq_keep(self, seq_id: int) -> None:
        self.attn.seq_keep(seq_id)
        self.recr.seq_keep(seq_id)

    def seq_add(self, seq_id: int, p0: int, p1: int, delta: int) -> None:
        self.attn.seq_add(seq_id, p0, p1, delta)
        self.recr.seq_add(seq_id, p0, p1, delta)

    def seq_div(self, seq_id: int, p0: int, p1: int, d: int) -> None:
        self.attn.seq_div(seq_id, p0, p1, d)
        self.recr.seq_div(seq_id, p0, p1, d)

    def seq_pos_min(self, seq_id: int) -> int:
        return max(self.attn.seq_pos_min(seq_id), self.recr.seq_pos_min(seq_id))

    def seq_pos_max(self, seq_id: int) -> int:
        return min(self.attn.seq_pos_max(seq_id), self.recr.seq_pos_max(seq_id))

    def kv_caches(self) -> list[KVCache]:
        return [self.attn]

    def memory_breakdown(self) -> dict[str, int]:
        sizes = self.attn.memory_breakdown()
        for name, size in self.recr.memory_breakdown().items():
            sizes[name] = sizes.get(name, 0) + size
        return sizes

    def layout(self) -> str:
        return f"{self.attn.layout()} + {self.recr.layout()}"

    def state_write(self, io: StateWriter, seq_id: int = -1, partial: bool = False) -> None:
        if not partial:
            self.attn.state_write(io, seq_id)
        self.recr.state_write(io, seq_id)

    def state_read(self, io: StateReader, seq_id: int = -1, partial: bool = False) -> None:
        try:
            if not partial:
                self.attn.state_read(io, seq_id)
            self.recr.state_read(io, seq_id)
        except ContextError:  # half a state is none
            self.attn.seq_rm(seq_id)
            self.recr.seq_rm(seq_id)
            raise


class HybridContext:
    """A batch's ubatches in both memories (llama_memory_hybrid_context)."""

    def __init__(self, attn: KVCacheContext, recr: RecurrentContext) -> None:
        self.attn = attn
        self.recr = recr

    def next(self) -> bool:
        self.attn.next()
        return self.recr.next()

    def apply(self) -> None:
        self.attn.apply()
        self.recr.apply()

    def get_ubatch(self) -> UBatch:
        return self.recr.get_ubatch()

    def get_attn(self) -> KVCacheContext:
        return self.attn

    def get_recr(self) -> RecurrentContext:
        return self.recr
