"""Recorder of nodes that the real llama.cpp computes, through its evaluation callback."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ggml_py.inspection.dump import Record

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
Read = Callable[[], Values | None]
Watch = Callable[[Record, Read], None]
WatchInput = Callable[[int, str, Read], None]
NO_OP, INPUT = 0, 1  # ggml.h:GGML_OP_NONE, GGML_TENSOR_FLAG_INPUT


class PeerRecorder:
    """Turns each node that llama.cpp computes into a record, and reads its values. It also reads
    the inputs of a graph, with the graph's number and the input's name."""

    def __init__(self, llama_cpp: Any, watch: Watch, watch_input: WatchInput | None = None) -> None:
        from llama_cpp._ggml import libggml

        self.callback = llama_cpp.llama_cpp.ggml_backend_sched_eval_callback(self._node)
        self._op_desc, self._type_name = libggml.ggml_op_desc, libggml.ggml_type_name
        for function in (self._op_desc, self._type_name):
            function.restype = ctypes.c_char_p
        self._op_desc.argtypes = [ctypes.POINTER(GGMLTensor)]
        self._type_name.argtypes = [ctypes.c_int]
        self._watch, self._watch_input = watch, watch_input
        self._first: tuple[str, ...] = ()
        self._graph, self._index = -1, 0

    def next_graph(self) -> None:
        """Note that the next node is the first of a graph, regardless of its name."""
        self._first = ()

    def _node(self, address: int, ask: bool, _: Any) -> bool:
        if not ask:
            t = ctypes.cast(address, ctypes.POINTER(GGMLTensor))[0]
            names = _name(t), *(_name(s[0]) for s in t.src if s)
            self._first = self._first or names
            if names == self._first:
                self._graph, self._index = self._graph + 1, 0
            record = self._record(t)
            self._watch(record, lambda: _values(t, record["type"]))
            self._index += 1
            if self._watch_input is not None:
                self._inputs(t, self._watch_input)
        return True

    def _inputs(self, t: GGMLTensor, watch: WatchInput) -> None:
        for source in t.src:
            if source and source[0].op == NO_OP and source[0].flags & INPUT:
                s, kind = source[0], self._type_name(source[0].type).decode()
                watch(self._graph, _name(s), lambda s=s, kind=kind: _values(s, kind))  # type: ignore[misc]

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
    """Return a copy of the node's values."""
    dtype = DTYPES.get(kind)
    if dtype is None:
        return None
    shape, strides = list(t.ne)[::-1], list(t.nb)[::-1]
    if not np.prod(shape):
        return np.empty(shape, np.float32)
    size = sum((n - 1) * stride for n, stride in zip(shape, strides, strict=True))
    raw = (ctypes.c_char * (size + np.dtype(dtype).itemsize)).from_address(t.data)
    return np.ndarray(shape, dtype, raw, strides=strides).astype(np.float32)
