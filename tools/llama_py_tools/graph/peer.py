"""The nodes that the real llama.cpp runs, through llama-cpp-python's evaluation callback."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ggml_py.dump import Record
from ggml_py.errors import GGMLError

FLASH_ATTN = {"auto": -1, "off": 0, "on": 1}
CACHE_TYPES = {"f32": 0, "f16": 1}
DTYPES = {"f32": np.float32, "f16": np.float16, "i32": np.int32, "i64": np.int64}


class GGMLTensor(ctypes.Structure):
    """ggml.h:struct ggml_tensor, as of llama-cpp-python 0.3.36."""


GGMLTensor._fields_ = [
    ("type", ctypes.c_int),
    ("buffer", ctypes.c_void_p),
    ("ne", ctypes.c_int64 * 4),
    ("nb", ctypes.c_size_t * 4),
    ("op", ctypes.c_int),
    ("op_params", ctypes.c_int32 * 16),
    ("flags", ctypes.c_int32),
    ("src", ctypes.POINTER(GGMLTensor) * 10),
    ("view_src", ctypes.POINTER(GGMLTensor)),
    ("view_offs", ctypes.c_size_t),
    ("data", ctypes.c_void_p),
    ("name", ctypes.c_char * 64),
]


Values = NDArray[np.float32]  # [ne3, ne2, ne1, ne0]
Watch = Callable[[Record, Callable[[], Values | None]], None]


def records(path: str, ids: Sequence[int], n_decode: int, **context: Any) -> list[Record]:
    """The nodes of a prompt's graphs, then of n_decode single tokens (their ids do not matter).

    context  n_ctx, n_batch, n_ubatch and flash_attn ("auto", "on", "off")
    Raises GGMLError if llama-cpp-python is missing, or llama.cpp refuses.
    """
    found: list[Record] = []
    context["n_batch"] = max(context["n_batch"], len(ids))
    with Peer(path, watch=lambda record, _: found.append(record), **context) as peer:
        for tokens in (ids, *([0] for _ in range(n_decode))):
            peer.decode(tokens)
    return found


class Peer:
    """A model in llama.cpp on the CPU, to be used in a `with` statement.

    cache  type of keys and values, "f16" or "f32"
    watch  called with each node it has computed, and what reads the node's values, at once or
           never; None of a quantized type
    Raises GGMLError if llama-cpp-python is missing, or llama.cpp refuses.
    """

    def __init__(
        self, path: str, *, n_ctx: int, n_batch: int, n_ubatch: int, flash_attn: str = "auto",
        cache: str = "f16", n_threads: int = 0, watch: Watch | None = None,
    ) -> None:  # fmt: skip
        self.api = api = _llama_cpp()
        api.llama_log_set(_no_log(api), None)
        api.llama_backend_init()
        model_params = api.llama_model_default_params()
        model_params.n_gpu_layers = 0
        params = api.llama_context_default_params()
        params.n_ctx, params.n_batch, params.n_ubatch = n_ctx, n_batch, n_ubatch
        params.flash_attn_type = FLASH_ATTN[flash_attn]
        params.type_k = params.type_v = CACHE_TYPES[cache]
        if n_threads:
            params.n_threads = params.n_threads_batch = n_threads
        if watch is not None:
            self._recorder = Recorder(api, watch)
            params.cb_eval = self._recorder.callback
        self._model = api.llama_model_load_from_file(path.encode(), model_params)
        if not self._model:
            raise GGMLError(f"llama.cpp cannot load {path}")
        self.ctx = api.llama_init_from_model(self._model, params)
        if not self.ctx:
            api.llama_model_free(self._model)
            raise GGMLError(f"llama.cpp cannot make a context of {n_ctx} tokens for {path}")
        self.n_vocab: int = api.llama_vocab_n_tokens(api.llama_model_get_vocab(self._model))

    def __enter__(self) -> Peer:
        return self

    def __exit__(self, *_: object) -> None:
        self.api.llama_free(self.ctx)
        self.api.llama_model_free(self._model)

    def decode(self, tokens: Sequence[int]) -> NDArray[np.float32]:
        """Go on with these tokens. -> the logits of the last one, [n_vocab]"""
        ids = (self.api.llama_token * len(tokens))(*tokens)
        code = self.api.llama_decode(self.ctx, self.api.llama_batch_get_one(ids, len(tokens)))
        if code:
            what = f"{len(tokens)} tokens: llama_decode gave {code}"
            raise GGMLError(f"llama.cpp cannot decode {what}")
        logits = self.api.llama_get_logits_ith(self.ctx, -1)
        return np.ctypeslib.as_array(logits, (self.n_vocab,)).copy()


def _llama_cpp() -> Any:
    try:
        import llama_cpp
    except ImportError as e:
        raise GGMLError(
            f"--against llama.cpp needs llama-cpp-python (pip install llama-cpp-python): {e}"
        ) from e
    return llama_cpp


@cache
def _no_log(llama_cpp: Any) -> Any:
    """A callback that drops what it is told; llama.cpp keeps it, so it is never freed."""
    return llama_cpp.llama_log_callback(lambda *_: None)


class Recorder:
    """Turns each node that llama.cpp computes into a record, and reads its values."""

    def __init__(self, llama_cpp: Any, watch: Watch) -> None:
        from llama_cpp._ggml import libggml

        self.callback = llama_cpp.llama_cpp.ggml_backend_sched_eval_callback(self._node)
        self._op_desc, self._type_name = libggml.ggml_op_desc, libggml.ggml_type_name
        for function in (self._op_desc, self._type_name):
            function.restype = ctypes.c_char_p
        self._op_desc.argtypes = [ctypes.POINTER(GGMLTensor)]
        self._type_name.argtypes = [ctypes.c_int]
        self._watch = watch
        self._first = ""
        self._graph, self._index = -1, 0

    def _node(self, address: int, ask: bool, _: Any) -> bool:
        if not ask:
            t = ctypes.cast(address, ctypes.POINTER(GGMLTensor))[0]
            self._first = self._first or _name(t)
            if _name(t) == self._first:
                self._graph, self._index = self._graph + 1, 0
            record = self._record(t)
            self._watch(record, lambda: _values(t, record["type"]))
            self._index += 1
        return True

    def _record(self, t: GGMLTensor) -> Record:
        return {
            "dec": self._graph,
            "i": self._index,
            "name": _name(t),
            "op": self._op_desc(t).decode(),
            "type": self._type_name(t.type).decode(),
            "ne": list(t.ne),
            "nb": list(t.nb),
            "offs": t.view_offs,
            "flags": t.flags,
            "view_src": _name(t.view_src[0]) if t.view_src else "",
            "params": list(t.op_params),
            "src": [self._source(k, s[0]) for k, s in enumerate(t.src) if s],
        }

    def _source(self, k: int, s: GGMLTensor) -> Record:
        kind = self._type_name(s.type).decode()
        return {"k": k, "name": _name(s), "type": kind, "ne": list(s.ne), "nb": list(s.nb)}


def _name(t: GGMLTensor) -> str:
    return bytes(t.name).decode(errors="ignore")


def _values(t: GGMLTensor, kind: str) -> Values | None:
    """A copy of the node's values."""
    dtype = DTYPES.get(kind)
    if dtype is None:
        return None
    shape, strides = list(t.ne)[::-1], list(t.nb)[::-1]
    if not np.prod(shape):
        return np.empty(shape, np.float32)
    size = sum((n - 1) * stride for n, stride in zip(shape, strides, strict=True))
    raw = (ctypes.c_char * (size + np.dtype(dtype).itemsize)).from_address(t.data)
    return np.ndarray(shape, dtype, raw, strides=strides).astype(np.float32)
