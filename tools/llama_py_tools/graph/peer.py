"""The nodes that the real llama.cpp runs, through llama-cpp-python's evaluation callback."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

from ggml_py.dump import Record
from ggml_py.errors import GGMLError

FLASH_ATTN = {"auto": -1, "off": 0, "on": 1}


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


def records(path: str, ids: Sequence[int], n_decode: int, **context: Any) -> list[Record]:
    """The nodes of a prompt's graphs, then of n_decode single tokens (their ids do not matter).

    context  n_ctx, n_batch, n_ubatch and flash_attn ("auto", "on", "off")
    Raises GGMLError if llama-cpp-python is missing, or llama.cpp refuses.
    """
    try:
        import llama_cpp
    except ImportError as e:
        raise GGMLError(
            f"--against llama.cpp needs llama-cpp-python (pip install llama-cpp-python): {e}"
        ) from e
    recorder = Recorder(llama_cpp)
    log = llama_cpp.llama_log_callback(lambda *_: None)
    llama_cpp.llama_log_set(log, None)
    llama_cpp.llama_backend_init()
    model = llama_cpp.llama_model_load_from_file(path.encode(), _model_params(llama_cpp))
    if not model:
        raise GGMLError(f"llama.cpp cannot load {path}")
    params = llama_cpp.llama_context_default_params()
    params.n_ctx, params.n_ubatch = context["n_ctx"], context["n_ubatch"]
    params.n_batch = max(context["n_batch"], len(ids))
    params.flash_attn_type = FLASH_ATTN[context["flash_attn"]]
    params.cb_eval = recorder.callback
    ctx = llama_cpp.llama_init_from_model(model, params)
    try:
        for tokens in (ids, *([0] for _ in range(n_decode))):
            _decode(llama_cpp, ctx, tokens)
    finally:
        llama_cpp.llama_free(ctx)
        llama_cpp.llama_model_free(model)
    return recorder.records


def _model_params(llama_cpp: Any) -> Any:
    params = llama_cpp.llama_model_default_params()
    params.n_gpu_layers = 0
    return params


def _decode(llama_cpp: Any, ctx: Any, tokens: Sequence[int]) -> None:
    array = (llama_cpp.llama_token * len(tokens))(*tokens)
    code = llama_cpp.llama_decode(ctx, llama_cpp.llama_batch_get_one(array, len(tokens)))
    if code:
        raise GGMLError(f"llama.cpp cannot decode {len(tokens)} tokens: llama_decode gave {code}")


class Recorder:
    """Turns each node that llama.cpp computes into a record."""

    def __init__(self, llama_cpp: Any) -> None:
        from llama_cpp._ggml import libggml

        self.records: list[Record] = []
        self.callback = llama_cpp.llama_cpp.ggml_backend_sched_eval_callback(self._node)
        self._op_desc, self._type_name = libggml.ggml_op_desc, libggml.ggml_type_name
        for function in (self._op_desc, self._type_name):
            function.restype = ctypes.c_char_p
        self._op_desc.argtypes = [ctypes.POINTER(GGMLTensor)]
        self._type_name.argtypes = [ctypes.c_int]
        self._graph, self._index = -1, 0

    def _node(self, address: int, ask: bool, _: Any) -> bool:
        if not ask:
            t = ctypes.cast(address, ctypes.POINTER(GGMLTensor))[0]
            if not self.records or _name(t) == self.records[0]["name"]:
                self._graph, self._index = self._graph + 1, 0
            self.records.append(self._record(t))
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
