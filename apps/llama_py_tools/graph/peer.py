"""Binding of the real llama.cpp in this process, through llama-cpp-python: nodes, logits,
embeddings."""

from __future__ import annotations

import ctypes
from collections import deque
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ggml_py.errors import GGMLError
from ggml_py.inspection.dump import Record
from llama_py.batch import Batch
from llama_py_tools.graph.peer_nodes import PeerRecorder, Values, Watch, WatchInput

__all__ = ["Peer", "Values", "Watch", "records"]

FLASH_ATTN = {"auto": -1, "off": 0, "on": 1}
CACHE_TYPES = {"f32": 0, "f16": 1}
POOLING = {"unspecified": -1, "none": 0, "mean": 1, "cls": 2, "last": 3, "rank": 4}
MTP = 1  # llama.h:LLAMA_CONTEXT_TYPE_MTP
# llama-context.h, llama-cparams.h: a reference to the model, then eighteen words and seven flags
# before fused_gdn_ar, fused_gdn_ch, auto_fgdn, fused_lid, auto_flid, fused_dsv4_hc_pre,
# fused_dsv4_hc_comb, fused_dsv4_hc_post and auto_fhc.
FUSED_AT = 8 + 18 * 4 + 7
FUSED = {"delta_net": (0, 1), "lightning_indexer": (3,), "hyper_connections": (5, 6, 7)}

ERROR = 4  # ggml.h:GGML_LOG_LEVEL_ERROR

Floats = NDArray[np.float32]


def records(
    path: str,
    ids: Sequence[int],
    n_decode: int,
    adapters: Sequence[tuple[str, float]] = (),
    **context: Any,
) -> list[Record]:
    """Return the nodes of a prompt's graphs, then of n_decode single tokens (of any id).

    adapters  LoRA files with their scales
    context  n_ctx, n_batch, n_ubatch and flash_attn ("auto", "on", "off")
    Raises GGMLError if llama-cpp-python is missing, or llama.cpp refuses.
    """
    found: list[Record] = []
    context["n_batch"] = max(context["n_batch"], len(ids))
    with Peer(path, watch=lambda record, _: found.append(record), **context) as peer:
        peer.set_adapters(adapters)
        for tokens in (ids, *([0] for _ in range(n_decode))):
            peer.decode(tokens)
    return found


class Peer:
    """A model in llama.cpp on the CPU, to be used in a `with` statement.

    cache    type of keys and values, "f16" or "f32"
    watch    called with each computed node, and a function that reads the node's values, valid
             during the call only; it returns None for a quantized type
    watch_input  called like `watch`, with the graph's number and the input's name first
    mtp      run the NextN layers instead of the trunk
    pooling  of embeddings, one of POOLING
    target   file of the target model, for a pure draft model
    more     further fields of llama_context_params
    Raises GGMLError if llama-cpp-python is missing, or llama.cpp refuses.
    """

    def __init__(
        self,
        path: str,
        *,
        n_ctx: int,
        n_batch: int,
        n_ubatch: int,
        flash_attn: str = "auto",
        cache: str = "f16",
        n_threads: int = 0,
        watch: Watch | None = None,
        mtp: bool = False,
        pooling: str = "unspecified",
        watch_input: WatchInput | None = None,
        target: str | None = None,
        **more: Any,
    ) -> None:
        self.api = api = _llama_cpp()
        api.llama_log_set(_log(api), None)
        api.llama_backend_init()
        model_params = api.llama_model_default_params()
        model_params.n_gpu_layers, model_params.load_mtp = 0, True
        # Unchanged weights: repacked for some CPUs, they round differently or crash.
        model_params.use_extra_bufts = False
        params = api.llama_context_default_params()
        params.n_ctx, params.n_batch, params.n_ubatch = n_ctx, n_batch, n_ubatch
        params.flash_attn_type = FLASH_ATTN[flash_attn]
        params.type_k = params.type_v = CACHE_TYPES[cache]
        params.pooling_type = POOLING[pooling]
        params.ctx_type = MTP if mtp else 0
        if n_threads:
            params.n_threads = params.n_threads_batch = n_threads
        self._kind = False, False
        self._recorder = PeerRecorder(api, watch, watch_input) if watch else None
        if self._recorder:
            params.cb_eval = self._recorder.callback
        for name, value in more.items():
            setattr(params, name, value)
        self.target: Peer | None = None
        if target is not None:
            self.target = Peer(
                target,
                n_ctx=n_ctx,
                n_batch=n_batch,
                n_ubatch=n_ubatch,
                flash_attn=flash_attn,
                cache=cache,
                **more,
            )
            params.ctx_other = self.target.ctx
        self.model = api.llama_model_load_from_file(path.encode(), model_params)
        if not self.model:
            raise GGMLError(f"llama.cpp cannot load {path}{_reason()}")
        self.ctx: Any = api.llama_init_from_model(self.model, params)
        if not self.ctx:
            api.llama_model_free(self.model)
            what = f"create a context of {n_ctx} tokens for {path}"
            raise GGMLError(f"llama.cpp cannot {what}{_reason()}")
        self.n_vocab: int = api.llama_vocab_n_tokens(api.llama_model_get_vocab(self.model))
        self.n_embd: int = api.llama_model_n_embd(self.model)
        self.n_embd_out: int = api.llama_model_n_embd_out(self.model)

    def __enter__(self) -> Peer:
        return self

    def __exit__(self, *_: object) -> None:
        self.api.llama_free(self.ctx)
        self.api.llama_model_free(self.model)
        if self.target is not None:
            self.target.__exit__()

    def decode(self, tokens: Sequence[int]) -> Floats:
        """Decode these tokens and return the logits of the last one, [n_vocab]."""
        ids = (self.api.llama_token * len(tokens))(*tokens)
        code = self.api.llama_decode(self.ctx, self.api.llama_batch_get_one(ids, len(tokens)))
        if code:
            what = f"{len(tokens)} tokens: llama_decode returned {code}"
            raise GGMLError(f"llama.cpp cannot decode {what}")
        row: Floats = self.logits(1)[0]
        return row

    def run(self, batch: Batch, encode: bool = False) -> None:
        """Decode, or encode, a batch with explicit positions, sequences and outputs."""
        keep, native = native_batch(self.api.llama_batch, batch)
        encode = encode or not self.api.llama_model_has_decoder(self.model)
        kind = encode, batch.tokens is None
        if self._recorder and kind != self._kind:
            self._recorder.next_graph()
        self._kind = kind
        call = self.api.llama_encode if encode else self.api.llama_decode
        code = call(self.ctx, native)
        del keep
        if code:
            what = f"run a batch of {native.n_tokens} tokens: {code}"
            raise GGMLError(f"llama.cpp cannot {what}{_reason()}")

    def see_all(self) -> None:
        """Disable the causal mask: tokens also attend to later tokens."""
        self.api.llama_set_causal_attn(self.ctx, False)

    def fill(self, batch: Batch) -> None:
        """Let the model that it drafts for read a batch."""
        assert self.target is not None
        self.target.run(batch)

    def n_past(self) -> int:
        """Return the number of tokens of sequence 0 in memory; 0 for a model without memory."""
        memory = self.api.llama_get_memory(self.ctx)
        return 1 + int(self.api.llama_memory_seq_pos_max(memory, 0)) if memory else 0

    def set_adapters(self, files: Sequence[tuple[str, float]]) -> None:
        """Set the LoRA adapters, each with its scale."""
        n = len(files)
        loaded = [self.api.llama_adapter_lora_init(self.model, p.encode()) for p, _ in files]
        if not all(loaded):
            raise GGMLError(f"llama.cpp cannot load {files[loaded.index(None)][0]}{_reason()}")
        adapters = (self.api.llama_cpp.llama_adapter_lora_p_ctypes * n)(*loaded)
        scales = (ctypes.c_float * n)(*(scale for _, scale in files))
        self.api.llama_set_adapters_lora(self.ctx, adapters, n, scales)

    def set_control_vector(self, directions: Floats, first: int, last: int) -> None:
        """Set directions [n, n_embd] to add to the results of layers, layer 1's first."""
        data = np.ascontiguousarray(directions, np.float32)
        values = data.ctypes.data_as(ctypes.POINTER(ctypes.c_float))
        n_embd = data.shape[1]
        if self.api.llama_set_adapter_cvec(self.ctx, values, data.size, n_embd, first, last):
            raise GGMLError(f"llama.cpp rejected the control vector{_reason()}")

    def logits(self, n: int) -> Floats:
        """Return logits of the last n outputs. -> [n, n_vocab]"""
        rows = [self.api.llama_get_logits_ith(self.ctx, -n + i) for i in range(n)]
        return np.stack([np.ctypeslib.as_array(row, (self.n_vocab,)).copy() for row in rows])

    def embeddings(self, n: int) -> Floats:
        """Return embeddings of the n outputs, not pooled. -> [n, n_embd_out]"""
        rows = self.api.llama_get_embeddings(self.ctx)
        return np.ctypeslib.as_array(rows, (n, self.n_embd_out)).copy()

    def embeddings_seq(self, seq: int) -> Floats:
        """Return a sequence's embedding [n_embd_out], or a reranker's scores [n_cls_out]."""
        row = self.api.llama_get_embeddings_seq(self.ctx, seq)
        rank = self.api.llama_pooling_type(self.ctx) == POOLING["rank"]
        n = self.api.llama_model_n_cls_out(self.model) if rank else self.n_embd_out
        return np.ctypeslib.as_array(row, (n,)).copy()

    def set_embeddings_nextn(self, masked: bool) -> None:
        """Keep the hidden states that seed NextN layers: of all tokens, or of outputs."""
        function = self.api.llama_cpp._lib["_Z26llama_set_embeddings_nextnP13llama_contextbb"]
        function.argtypes = [ctypes.c_void_p, ctypes.c_bool, ctypes.c_bool]
        function(self.ctx, True, masked)

    def h_nextn(self, n: int) -> Floats:
        """Return the kept hidden states, [n, n_embd_out]."""
        function = self.api.llama_cpp._lib["_Z26llama_get_embeddings_nextnP13llama_context"]
        function.argtypes, function.restype = [ctypes.c_void_p], ctypes.POINTER(ctypes.c_float)
        return np.ctypeslib.as_array(function(self.ctx), (n, self.n_embd_out)).copy()

    def refuse_fused(self, kind: str) -> None:
        """Build a type of block (llama_py.hparams.variants) node by node, like on a device without
        the fused op. llama.cpp has no parameter for that, so this sets the flags in the context."""
        address = ctypes.cast(self.ctx, ctypes.c_void_p).value
        assert address is not None
        sizes = (ctypes.c_uint32 * 3).from_address(address + 8)
        n_ctx = self.api.llama_n_ctx(self.ctx), self.api.llama_n_batch(self.ctx)
        flags = (ctypes.c_uint8 * 9).from_address(address + FUSED_AT)
        if (sizes[0], sizes[2]) != n_ctx or list(flags) != [1, 1, 0, 1, 0, 1, 1, 1, 0]:
            raise GGMLError(
                "this version of llama.cpp is not supported; install llama-cpp-python 0.3.36"
            )
        for i in FUSED[kind]:
            flags[i] = 0


def native_batch(kind: type[Any], batch: Batch) -> tuple[Any, Any]:
    """Return objects that must stay alive, and the batch as a struct llama_batch."""
    assert batch.pos is not None
    assert batch.seq_ids is not None and batch.outputs is not None
    n = len(batch.outputs)
    token = None if batch.tokens is None else (ctypes.c_int32 * n)(*batch.tokens)
    pos = np.ascontiguousarray(batch.pos, np.int32)  # position axes one by one
    sets = [tuple(ids) for ids in batch.seq_ids]
    seq = [(ctypes.c_int32 * len(ids))(*ids) for ids in sets]
    n_seq_id = (ctypes.c_int32 * n)(*map(len, sets))
    pointer = ctypes.POINTER(ctypes.c_int32)
    seq_id = (pointer * (n + 1))(*(ctypes.cast(ids, pointer) for ids in seq))
    output = (ctypes.c_int8 * n)(*batch.outputs)
    native = kind()
    native.n_tokens, native.pos = n, pos.ctypes.data_as(pointer)
    if token is not None:
        native.token = token
    native.n_seq_id, native.seq_id, native.logits = n_seq_id, seq_id, output
    embd = None
    if batch.embd is not None:
        embd = np.ascontiguousarray(batch.embd, np.float32)
        native.embd = embd.ctypes.data_as(ctypes.POINTER(ctypes.c_float))
    return (token, pos, seq, n_seq_id, seq_id, output, embd), native


def _llama_cpp() -> Any:
    try:
        import llama_cpp
    except ImportError as e:
        raise GGMLError(
            f"--against llama.cpp needs llama-cpp-python (pip install llama-cpp-python): {e}"
        ) from e
    return llama_cpp


_errors: deque[str] = deque(maxlen=3)


@cache
def _log(llama_cpp: Any) -> Any:
    """Return a callback that keeps the last errors; llama.cpp keeps it, so it is never freed."""

    def write_log(level: int, text: bytes, _: Any) -> None:
        if level == ERROR:
            _errors.append(text.decode(errors="replace").strip())

    return llama_cpp.llama_log_callback(write_log)


def _reason() -> str:
    """Return llama.cpp's error messages."""
    said = "".join(f"; {text}" for text in _errors)
    _errors.clear()
    return said
