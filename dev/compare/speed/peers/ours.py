"""Engine of llama-py in comparisons."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import Any

from dev.compare.speed.engine import Engine, Sizes

OPTION = None  # always there


def started(value: Any) -> Iterator[tuple[str, str, dict[str, Any]]]:
    yield "ours", sys.executable, {}


class Loaded(Engine):
    name = "llama-py"

    def __init__(self, model: str, threads: int, embeds: bool = False) -> None:
        import llama_py
        from ggml_py.backend import registry

        registry.device("cpu").set_threads(threads)
        self.threads, self.embeds = threads, embeds
        self.model = llama_py.load(model, "cpu")
        self.ctx: Any = None
        self.kept: list[tuple[int, bytes]] = []

    def open(self, sizes: Sizes) -> None:
        if self.ctx is not None:
            self.ctx.close()
        self.ctx, self.kept = None, []
        self.ctx = self.model.context(
            sizes.n_ctx * sizes.n_seqs,
            n_seq_max=sizes.n_seqs,
            n_batch=sizes.n_batch,
            n_ubatch=sizes.n_ubatch,
            type_k=sizes.type_k,
            type_v=sizes.type_v,
            n_threads=self.threads,
            **({"embeddings": True, "pooling": "mean"} if self.embeds else {}),
        )
        self.n_vocab = self.ctx.n_vocab

    def clear(self) -> None:
        self.ctx.memory.clear(False)

    def decode(self, tokens: Sequence[int], seq: int = 0) -> Any:
        rows = self.ctx.decode(tokens, seq_id=seq)
        if not self.embeds:
            return rows[-1]
        found = self.ctx.embd_seq[seq]
        self.n_row = len(found)
        return found

    def step(self, tokens: Sequence[int]) -> None:
        from llama_py.batch import Batch

        self.ctx.decode(Batch(tokens, seq_ids=[(s,) for s in range(len(tokens))]), "all")

    def decode_all(self, tokens: Sequence[int]) -> None:
        self.ctx.decode(tokens, "all")

    def save(self, seq: int) -> bytes:
        return bytes(self.ctx.save_state(seq))

    def restore(self, seq: int, state: bytes, n: int) -> None:
        self.ctx.load_state(state, seq)

    def keep(self) -> None:
        """Copy only states that the memory cannot roll back."""
        copied = self.depth > 0 and not self.ctx.memory.supports_rollback
        seqs = range(self.sizes.n_seqs)
        self.kept = [(s, self.ctx.save_state(s) if copied else b"") for s in seqs]

    def back(self) -> None:
        if not self.depth:
            self.clear()
            return
        for seq, state in self.kept:
            if state:
                self.ctx.load_state(state, seq)
            else:
                self.ctx.memory.seq_rm(seq, self.depth, -1)

    def cache_bytes(self) -> int:
        return sum(use["context"] for use in self.ctx.memory_breakdown().values())
