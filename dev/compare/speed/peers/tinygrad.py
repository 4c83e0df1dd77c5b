"""tinygrad's language models, on the CPU."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

from dev.compare.speed.engine import CHECKED, Engine, Sizes, random_tokens

OPTION = "--tinygrad", {"metavar": "PYTHON", "help": "has tinygrad"}
MODULES = ("tinygrad.llm.model", "tinygrad.apps.llm")  # module names of newer and older versions


def started(python: str) -> Iterator[tuple[str, str, dict[str, Any]]]:
    yield "tinygrad", python, {}


class Loaded(Engine):
    """tinygrad's engine: greedy generation after a prompt, with a prefix cache."""

    name = "tinygrad"

    def __init__(self, model: str, threads: int) -> None:
        os.environ.update(DEV="CPU", CPU="1", CPU_COUNT=str(threads))
        self.path, self.model = model, None
        self.tinygrad = import_module("tinygrad")
        self.transformer = first_of(MODULES).Transformer
        self.tokens: list[int] = []
        self.n_runs = 0

    def open(self, sizes: Sizes) -> None:
        """Reload the model, since tinygrad sets the context size when it loads a file."""
        if sizes.n_seqs > 1 or (sizes.type_k, sizes.type_v) != ("f16", "f16"):
            raise ValueError("tinygrad supports one sequence and an F16 cache only")
        file = self.tinygrad.Tensor(Path(self.path))
        self.model, kv = self.transformer.from_gguf(file, sizes.n_ctx + 1)
        self.n_vocab = len(kv["tokenizer.ggml.tokens"])

    def clear(self) -> None:
        self.tokens = []

    def decode(self, tokens: Sequence[int], seq: int = 0) -> Any:
        raise ValueError("tinygrad does not return logits")

    def first_token(self) -> int:
        self.context(0, n_ctx=256)
        return int(next(self._after(CHECKED)))

    def _after(self, tokens: Sequence[int]) -> Iterator[int]:
        assert self.model is not None
        return iter(self.model.generate([*self.tokens, *tokens]))

    def fill(self, tokens: Sequence[int]) -> None:
        next(self._after(tokens))
        self.tokens = list(tokens)

    def keep(self) -> None:
        """Check that the engine rolls back to the common prefix automatically."""
        recurrent = getattr(self.model, "has_recurrent_block", False)
        if self.depth and (recurrent or not hasattr(self.model, "get_start_pos")):
            raise ValueError("tinygrad cannot roll back to a depth with this model or version")

    def back(self) -> None:
        if not self.depth:
            self.clear()

    def pp(self, n: int) -> float:
        """Time a prompt and its first token, which tinygrad always generates; prompts differ."""
        self.n_runs += 1
        tokens = [(token + self.n_runs) % self.n_vocab for token in random_tokens(n, self.n_vocab)]
        start = time.perf_counter()
        next(self._after(tokens))
        return time.perf_counter() - start

    def tg(self, n: int) -> float:
        """Time generation after a first token, which is not measured."""
        text = self._after(CHECKED[:1])
        next(text)
        start = time.perf_counter()
        for _ in range(n):
            next(text)
        return time.perf_counter() - start


def first_of(names: Sequence[str]) -> Any:
    """Return the first module that is installed."""
    with suppress(ModuleNotFoundError):
        return import_module(names[0])
    return first_of(names[1:]) if len(names) > 2 else import_module(names[1])
