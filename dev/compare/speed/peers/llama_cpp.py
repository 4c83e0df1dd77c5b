"""Engine llama.cpp, through llama-cpp-python's low-level binding."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from ctypes import c_uint8
from typing import Any

from dev.compare.speed.engine import Sizes
from dev.compare.speed.peers._c_engine import CEngine

OPTION = (
    "--peer-python",
    {
        "metavar": "PYTHON",
        "default": sys.executable,
        "help": "Python with llama-cpp-python: time llama.cpp with and without repacking",
    },
)


def started(python: str) -> Iterator[tuple[str, str, dict[str, Any]]]:
    yield "llama.cpp repacked", python, {"repack": True}
    yield "llama.cpp plain", python, {"repack": False}


MEAN = 1  # LLAMA_POOLING_TYPE_MEAN


class Loaded(CEngine):
    name = "llama.cpp"
    log: Any  # reference to the callback that the library calls

    def __init__(self, model: str, threads: int, repack: bool, embeds: bool = False) -> None:
        import llama_cpp

        self.lib, self.threads, self.embeds = llama_cpp, threads, embeds
        type(self).log = llama_cpp.llama_log_callback(lambda *_: None)
        llama_cpp.llama_log_set(self.log, None)
        llama_cpp.llama_backend_init()
        params = llama_cpp.llama_model_default_params()
        params.n_gpu_layers, params.use_extra_bufts = 0, repack
        self.model = llama_cpp.llama_model_load_from_file(model.encode(), params)
        if not self.model:
            raise RuntimeError(f"llama.cpp cannot load {model}")
        vocab = llama_cpp.llama_model_get_vocab(self.model)
        self.n_vocab = llama_cpp.llama_vocab_n_tokens(vocab)
        self.n_row = llama_cpp.llama_model_n_embd(self.model) if embeds else 0

    def new_context(self, sizes: Sizes) -> Any:
        how = self.lib.llama_context_default_params()
        how.n_ctx, how.n_seq_max = sizes.n_ctx * sizes.n_seqs, sizes.n_seqs
        how.n_batch, how.n_ubatch = sizes.n_batch, sizes.n_ubatch
        how.n_threads = how.n_threads_batch = self.threads
        how.swa_full = False  # like llama-bench
        how.type_k, how.type_v = self.type_id(sizes.type_k), self.type_id(sizes.type_v)
        if self.embeds:
            how.embeddings, how.pooling_type = True, MEAN
        return self.lib.llama_init_from_model(self.model, how)

    def type_id(self, name: str) -> int:
        number = getattr(self.lib, f"GGML_TYPE_{name.upper()}", None)
        if not isinstance(number, int):
            raise ValueError(f"llama.cpp has no cache type {name}")
        return number

    def one(self, tokens: Any, n: int) -> Any:
        return self.lib.llama_batch_get_one(tokens, n)

    def forget(self) -> None:
        self.lib.llama_memory_clear(self.lib.llama_get_memory(self.ctx), False)

    @property
    def goes_back(self) -> bool:
        states = ("llama_model_is_recurrent", "llama_model_is_hybrid", "llama_model_n_swa")
        return not any(getattr(self.lib, name)(self.model) for name in states)

    def remove(self, seq: int, start: int) -> None:
        self.lib.llama_memory_seq_rm(self.lib.llama_get_memory(self.ctx), seq, start, -1)

    def save(self, seq: int) -> Any:
        size = self.lib.llama_state_seq_get_size(self.ctx, seq)
        state = (c_uint8 * size)()
        self.lib.llama_state_seq_get_data(self.ctx, state, size, seq)
        return state

    def set_state(self, seq: int, state: Any) -> None:
        if not self.lib.llama_state_seq_set_data(self.ctx, state, len(state), seq):
            raise RuntimeError("llama.cpp cannot restore its saved state")
