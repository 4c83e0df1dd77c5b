"""Benchmark engine: operations on a loaded model, and measurements that use them."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dev.compare.speed.test import REPEATED

CHECKED = [1, 5, 3, 2, 8, 4, 7, 6]  # prompt of the check that all engines agree


@dataclass(frozen=True)
class Sizes:
    """Sizes of a context; `n_ctx` is the size per sequence."""

    n_ctx: int
    n_seqs: int = 1
    n_batch: int = 2048
    n_ubatch: int = 512
    type_k: str = "f16"
    type_v: str = "f16"


class Engine(ABC):
    """Loaded model in one engine; each file in `peers` has a subclass.

    Unsupported operations raise ValueError; that test then omits the engine.
    """

    name: str
    n_vocab: int
    n_row: int = 0  # values per result; 0: n_vocab
    sizes: Sizes
    depth: int = 0

    @abstractmethod
    def __init__(self, model: str, threads: int, **how: Any) -> None:
        """Load the model file."""

    @abstractmethod
    def open(self, sizes: Sizes) -> None:
        """Create a context that replaces the previous one."""

    @abstractmethod
    def clear(self) -> None:
        """Remove all sequences from the context."""

    @abstractmethod
    def decode(self, tokens: Sequence[int], seq: int = 0) -> Any:
        """Continue a sequence; return the last token's logits."""

    def step(self, tokens: Sequence[int]) -> None:
        """Decode one token per sequence in one batch, with the logits of all tokens."""
        raise ValueError(f"{self.name} does not support batches of several sequences")

    def decode_all(self, tokens: Sequence[int]) -> None:
        """Continue sequence 0, with the logits of all its new tokens."""
        raise ValueError(f"{self.name} has no logits of all tokens")

    def keep(self) -> None:
        """Save the state of the sequences."""
        if self.depth:
            raise ValueError(f"{self.name} cannot go back to a depth")

    def back(self) -> None:
        """Roll back to the state saved by `keep`."""
        self.clear()

    def cache_bytes(self) -> int:
        """Return the bytes that the context stores for its tokens."""
        raise ValueError(f"{self.name} does not report the size of its caches")

    def save(self, seq: int) -> Any:
        """Return the state of a sequence as bytes."""
        raise ValueError(f"{self.name} cannot save the state of a sequence")

    def restore(self, seq: int, state: Any, n: int) -> None:
        """Set a sequence to a saved state with n tokens."""
        raise ValueError(f"{self.name} cannot restore the state of a sequence")

    def context(self, depth: int, states: str | None = None, **sizes: Any) -> None:
        """Create a context, with `depth` tokens in each sequence.

        states  folder of saved states; runs with other thread counts, weight layouts or larger
                depths continue from a saved state
        """
        self.depth, self.sizes = depth, Sizes(**sizes)
        self.open(self.sizes)
        self.clear()
        if depth:
            self._read_to(depth, None if states is None else Path(states))
        self.keep()

    def _read_to(self, depth: int, folder: Path | None) -> None:
        tokens, begin = random_tokens(depth, self.n_vocab), 0
        kinds = f"{self.sizes.type_k}-{self.sizes.type_v}"
        if folder is not None:
            stored = {int(p.name): p for p in folder.glob(f"{self.name}/{kinds}/*")}
            begin = max((n for n in stored if n <= depth), default=0)
        if begin:
            state = stored[begin].read_bytes()
            for seq in range(self.sizes.n_seqs):
                self.restore(seq, state, begin)
        if begin < depth:
            self.fill(tokens[begin:])
        if folder is not None and begin < depth:
            with suppress(ValueError):  # the engine cannot save a state
                state = bytes(self.save(0))
                path = folder / self.name / kinds / str(depth)
                path.parent.mkdir(parents=True, exist_ok=True)
                part = folder / "part"  # partial files of an interrupted run are ignored later
                part.write_bytes(state)
                part.replace(path)

    def fill(self, tokens: Sequence[int]) -> None:
        """Decode the same tokens in every sequence."""
        for seq in range(self.sizes.n_seqs):
            self._read(tokens, seq)

    def _read(self, tokens: Sequence[int], seq: int = 0) -> None:
        for i in range(0, len(tokens), self.sizes.n_batch):
            self.decode(tokens[i : i + self.sizes.n_batch], seq)

    def pp(self, n: int) -> float:
        """Return the seconds to process a prompt of n random tokens in batches."""
        tokens = random_tokens(n, self.n_vocab)
        self.back()
        start = time.perf_counter()
        self._read(tokens)
        return time.perf_counter() - start

    def new(self, n: int) -> float:
        """Return the seconds to create a context and process a prompt of n random tokens."""
        start = time.perf_counter()
        self.open(self.sizes)
        return time.perf_counter() - start + self.pp(n)

    def tg(self, n: int) -> float:
        """Return the seconds to decode n random tokens, one per batch."""
        tokens = random_tokens(n, self.n_vocab)
        self.back()
        start = time.perf_counter()
        for token in tokens:
            self.decode([token])
        return time.perf_counter() - start

    def batch(self, n: int) -> float:
        """Return the seconds to decode n tokens per sequence, with all sequences in each batch."""
        n_seqs = self.sizes.n_seqs
        tokens = random_tokens(n * n_seqs, self.n_vocab)
        self.back()
        start = time.perf_counter()
        for i in range(0, len(tokens), n_seqs):
            self.step(tokens[i : i + n_seqs])
        return time.perf_counter() - start

    def at_once(self, n: int) -> float:
        """Return the seconds of several batches with n tokens of one sequence each."""
        tokens = random_tokens(n * REPEATED, self.n_vocab)
        self.back()
        start = time.perf_counter()
        for i in range(0, len(tokens), n):
            self.decode_all(tokens[i : i + n])
        return time.perf_counter() - start

    def first_token(self) -> int:
        """Return the most likely token after a fixed prompt, or the index of the largest value."""
        self.context(0, n_ctx=256)
        logits = self.decode(CHECKED)
        return max(range(self.n_row or self.n_vocab), key=lambda i: float(logits[i]))


def random_tokens(n: int, n_vocab: int) -> list[int]:
    """Return the same tokens for every engine and run (a linear congruential generator)."""
    state, tokens = 1, []
    for _ in range(n):
        state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
        tokens.append((state >> 33) % n_vocab)
    return tokens
