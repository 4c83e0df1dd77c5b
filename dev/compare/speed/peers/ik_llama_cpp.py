"""ik_llama.cpp as a peer: calls the library of a built checkout by its C header."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterator
from ctypes import c_bool, c_char_p, c_float, c_int32, c_size_t, c_uint8, c_uint32, c_void_p
from pathlib import Path
from typing import Any

from dev.compare.speed.c_header import Header, enumerator
from dev.compare.speed.engine import Sizes
from dev.compare.speed.peers._c_engine import CEngine

OPTION = (
    "--ik",
    {
        "metavar": "PATH",
        "help": "a built checkout of ik_llama.cpp, or its llama-bench: with -rtr 1 and without",
    },
)
FOLDERS = ("src", "bin", "lib", ".", "build/src", "build/bin", "build/lib")
NAMES = ("libllama.so", "libllama.dylib")
# The settings of llama-bench; `started` sets -rtr.
BEST = {
    "flash_attn": True,
    "fused_moe_up_gate": True,
    "fused_up_gate": True,
    "graph_reuse": True,
    "mla_attn": 3,
}


def started(path: str) -> Iterator[tuple[str, str, dict[str, Any]]]:
    full = str(Path(path).resolve())
    yield "ik_llama.cpp repacked", sys.executable, {"path": full, "repack": True}
    yield "ik_llama.cpp plain", sys.executable, {"path": full, "repack": False}


class Loaded(CEngine):
    name = "ik_llama.cpp"
    log: Any  # must outlive the library

    def __init__(self, model: str, threads: int, path: str, repack: bool) -> None:
        root, library = find(Path(path))
        self.header = Header((root / "include" / "llama.h").read_text("utf-8"))
        self.ggml = (root / "ggml" / "include" / "ggml.h").read_text("utf-8")
        self.lib, self.threads = ctypes.CDLL(str(library)), threads
        self._declare()
        type(self).log = ctypes.CFUNCTYPE(None, ctypes.c_int, c_char_p, c_void_p)(lambda *_: None)
        self.lib.llama_log_set(self.log, None)
        self.lib.llama_backend_init()
        params = self.lib.llama_model_default_params()
        set_known(params, {"n_gpu_layers": 0, "repack_tensors": repack, "mla": BEST["mla_attn"]})
        self.model = self.lib.llama_model_load_from_file(model.encode(), params)
        if not self.model:
            raise RuntimeError(f"ik_llama.cpp cannot load {model}")
        self.n_vocab = self.lib.llama_n_vocab(self.model)

    def _declare(self) -> None:
        """Declare the arguments and results of the functions."""
        names = ("llama_model_params", "llama_context_params", "llama_batch")
        model, context, batch = map(self.header.struct, names)
        pointer, n, state = c_void_p, c_int32, (c_void_p, c_size_t, c_int32, c_uint32)
        functions: dict[str, tuple[Any, tuple[Any, ...]]] = {
            "llama_log_set": (None, (pointer, pointer)),
            "llama_backend_init": (None, ()),
            "llama_model_default_params": (model, ()),
            "llama_context_default_params": (context, ()),
            "llama_model_load_from_file": (pointer, (c_char_p, model)),
            "llama_init_from_model": (pointer, (pointer, context)),
            "llama_free": (None, (pointer,)),
            "llama_n_vocab": (n, (pointer,)),
            "llama_model_is_recurrent": (c_bool, (pointer,)),
            "llama_model_is_hybrid": (c_bool, (pointer,)),
            "llama_batch_init": (batch, (n, n, n)),
            "llama_batch_free": (None, (batch,)),
            "llama_batch_get_one": (batch, (ctypes.POINTER(n), n, n, n)),
            "llama_decode": (n, (pointer, batch)),
            "llama_synchronize": (None, (pointer,)),
            "llama_get_logits_ith": (ctypes.POINTER(c_float), (pointer, n)),
            "llama_kv_cache_clear": (None, (pointer,)),
            "llama_kv_cache_seq_rm": (c_bool, (pointer, n, n, n)),
            "llama_state_seq_get_size": (c_size_t, (pointer, n, c_uint32)),
            "llama_state_seq_get_data": (c_size_t, (pointer, *state)),
            "llama_state_seq_set_data": (c_size_t, (pointer, *state)),
        }
        for name, (gives, takes) in functions.items():
            function = getattr(self.lib, name)
            function.restype, function.argtypes = gives, takes

    def new_context(self, sizes: Sizes) -> Any:
        how = self.lib.llama_context_default_params()
        set_known(
            how,
            {
                **BEST,
                "n_ctx": sizes.n_ctx * sizes.n_seqs,
                "n_seq_max": sizes.n_seqs,
                "n_batch": sizes.n_batch,
                "n_ubatch": sizes.n_ubatch,
                "n_threads": self.threads,
                "n_threads_batch": self.threads,
                "type_k": self.type_id(sizes.type_k),
                "type_v": self.type_id(sizes.type_v),
            },
        )
        return self.lib.llama_init_from_model(self.model, how)

    def type_id(self, name: str) -> int:
        number = enumerator(self.ggml, f"GGML_TYPE_{name.upper()}")
        if number is None:
            raise ValueError(f"ik_llama.cpp has no cache type {name}")
        return number

    def one(self, tokens: Any, n: int) -> Any:
        return self.lib.llama_batch_get_one(tokens, n, self.at[0], 0)

    def forget(self) -> None:
        self.lib.llama_kv_cache_clear(self.ctx)

    @property
    def goes_back(self) -> bool:
        states = ("llama_model_is_recurrent", "llama_model_is_hybrid")
        return not any(getattr(self.lib, name)(self.model) for name in states)

    def remove(self, seq: int, start: int) -> None:
        if not self.lib.llama_kv_cache_seq_rm(self.ctx, seq, start, -1):
            raise RuntimeError(f"ik_llama.cpp cannot go back to position {start}")

    def save(self, seq: int) -> Any:
        state = (c_uint8 * self.lib.llama_state_seq_get_size(self.ctx, seq, 0))()
        self.lib.llama_state_seq_get_data(self.ctx, state, len(state), seq, 0)
        return state

    def set_state(self, seq: int, state: Any) -> None:
        if not self.lib.llama_state_seq_set_data(self.ctx, state, len(state), seq, 0):
            raise RuntimeError("ik_llama.cpp cannot restore its saved state")


def set_known(params: ctypes.Structure, values: dict[str, Any]) -> None:
    """Set the fields that this version of the library has."""
    known = {name for name, *_ in params._fields_}
    for name, value in values.items():
        if name in known:
            setattr(params, name, value)


def find(path: Path) -> tuple[Path, Path]:
    """Return the checkout that contains a path, and its built library."""
    above = [path, *path.parents]
    root = next((p for p in above if (p / "include" / "llama.h").exists()), None)
    if root is None:
        raise ValueError(f"{path}: no include/llama.h here or above; give the checkout")
    places = [p / folder / name for p in above for folder in FOLDERS for name in NAMES]
    library = next((p for p in places if p.exists() and root in p.parents), None)
    if library is None:
        raise ValueError(f"{root}: no libllama; build it with -DBUILD_SHARED_LIBS=ON")
    return root, library
