"""llama-cpp-python's class `Llama`: the cost of its Python over llama.cpp."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from dev.compare.speed.engine import Engine, Sizes

OPTION = "--llama-cpp-python", {"metavar": "PYTHON", "help": "has llama-cpp-python: its `Llama`"}


def started(python: str) -> Iterator[tuple[str, str, dict[str, Any]]]:
    yield "llama-cpp-python", python, {}


class Loaded(Engine):
    name = "llama-cpp-python"

    def __init__(self, model: str, threads: int) -> None:
        import llama_cpp

        self.lib = llama_cpp
        self.how = {"model_path": model, "n_threads": threads, "n_threads_batch": threads}
        self.llama: Any = None

    def open(self, sizes: Sizes) -> None:
        """Load the model again, because `Llama` is both model and context."""
        if sizes.n_seqs > 1:
            raise ValueError("llama-cpp-python's Llama has one sequence")
        types = [getattr(self.lib, f"GGML_TYPE_{t.upper()}") for t in (sizes.type_k, sizes.type_v)]
        if self.llama is not None:
            self.llama.close()
        self.llama = self.lib.Llama(
            **self.how,
            n_gpu_layers=0,
            n_ctx=sizes.n_ctx,
            n_batch=sizes.n_batch,
            n_ubatch=sizes.n_ubatch,
            type_k=types[0],
            type_v=types[1],
            verbose=False,
            flash_attn=True,
        )
        self.n_vocab = self.llama.n_vocab()

    def clear(self) -> None:
        self.llama.reset()

    def decode(self, tokens: Sequence[int], seq: int = 0) -> Any:
        self.llama.eval(tokens)
        return self.lib.llama_get_logits_ith(self.llama.ctx, -1)

    def keep(self) -> None:
        self.kept = self.llama.save_state() if self.depth else None

    def back(self) -> None:
        if self.kept is None:
            self.clear()
        else:
            self.llama.load_state(self.kept)
