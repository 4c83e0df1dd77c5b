"""Inputs of attention over caches: rows to write to, and masks of visible cells."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from ggml_py.backend import host_array
from ggml_py.tensor import Tensor
from ggml_py.types import F16, F32
from llama_py.batch import UBatch
from llama_py.graph.inputs.base import new_input, read_numbers, write
from llama_py.graph.params import GraphParams
from llama_py.hparams.layer_shape import Window
from llama_py.memory.kv import KVCacheContext
from llama_py.memory.mask import MaskRule, ubatch_mask


class InputAttnKV:
    """Write indices and mask of one cache (llm_graph_input_attn_kv, _k).

    part     name of the cache; `mctx` is its context for the ubatch
    k_idxs   I64 [n_tokens]
    v_idxs   I64 [n_tokens], or one per element; None if the values are part of the keys
    kq_mask  [n_kv, tokens of a stream, 1, n_stream]; sequences with a separate cache are
             streams. F16 for fused ops, which require it, else F32
    k_rot, v_rot   rotations of heads, for quantized caches and for indexers
    """

    def __init__(self, params: GraphParams, part: str, f16: bool) -> None:
        """Create the tensors; f16: the mask is F16."""
        self.part = part
        self.mctx = mctx = params.mctx.kv(part)
        self.causal = params.cparams.causal_attn
        if params.hparams.non_causal_type == "swa_only" and mctx.kv.window is None:
            self.causal = True
        self.spans = params.hparams.non_causal_type == "swa_full" and not self.causal
        self.alibi = params.hparams.max_alibi_bias > 0
        self.k_idxs = mctx.build_input_k_idxs(params.ubatch)
        self.v_idxs: Tensor | None = None
        if mctx.has_values:
            self.v_idxs = mctx.build_input_v_idxs(params.ubatch)
        mask_type = F16 if f16 else F32
        self.kq_mask = new_input("attn_inp_kq_mask", mask_type, *_mask_ne(params, mctx))
        self.k_rot = mctx.build_input_k_rot()
        self.v_rot = mctx.build_input_v_rot()

    def set_input(self, ubatch: UBatch) -> None:
        if self.k_idxs.buffer is not None:
            self.mctx.set_input_k_idxs(self.k_idxs, ubatch)
        if self.v_idxs is not None and self.v_idxs.buffer is not None:
            self.mctx.set_input_v_idxs(self.v_idxs, ubatch)
        if self.kq_mask.buffer is not None:
            how = self.causal, self.alibi, self.spans
            self.mctx.set_input_kq_mask(self.kq_mask, ubatch, *how)
        for rot in (self.k_rot, self.v_rot):
            if rot is not None and rot.buffer is not None:
                self.mctx.set_input_rot(rot)

    def follow(self, ubatch: UBatch) -> None:
        """Set inputs for the next token: it sees its own cell and its predecessor's cells, except
        for a cell beyond its window."""
        values, kv = self._values, self.mctx.kv
        several, window = ubatch.n_tokens > len(ubatch.seq_id_unq), kv.window
        if values is None or (several and (window is not None or not self.causal)):
            self.set_input(ubatch)
            return
        idxs, mask = values
        rows, size = self.mctx.rows(), kv.kv_size
        if several:
            mask[:, np.asarray(idxs[0]) % size] = 0
            tokens, seen = self._causal_pairs
            mask[tokens, rows[seen] % size] = 0
        else:  # scalar indices are faster than arrays of a few
            for i, row in enumerate(rows.tolist()):
                mask[i, row % size] = 0
                if window is not None:
                    for hidden in self._find_hidden(ubatch, i, row % size - window.size):
                        mask[i, hidden] = -np.inf
        for t in idxs:
            t[:] = rows.data

    def _find_hidden(self, ubatch: UBatch, i: int, likely: int) -> list[int]:
        """Return the cells at the first position beyond the window of token i."""
        kv, seq_id = self.mctx.kv, ubatch.seq_id[i][0]
        assert kv.window is not None
        pos = ubatch.pos.item(i) - kv.window.size
        if pos < 0:
            return []
        return kv.cells[kv.stream_index(seq_id)].find_position(
            pos, seq_id, likely, self.kq_mask.ne[0]
        )

    @cached_property
    def _values(self) -> tuple[list[memoryview], npt.NDArray[Any]] | None:
        """Rows to write to, and the mask [n_tokens, n_kv]; None if the next token does not see
        exactly one cell more."""
        kv, mask = self.mctx.kv, host_array(self.kq_mask)
        hides_one = kv.window is None or kv.window.kind == "standard"
        if mask is None or not hides_one or self.alibi or kv.tensors.v_trans:
            return None
        idxs = [read_numbers(t) for t in (self.k_idxs, self.v_idxs) if t is not None and t.buffer]
        if not idxs or any(t is None for t in idxs):
            return None
        return [t for t in idxs if t is not None], mask.reshape(-1, mask.shape[-1])

    @cached_property
    def _causal_pairs(self) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
        """Pairs of tokens of a sequence: the second is the first, or before it."""
        return np.tril_indices(self.k_idxs.ne[0])

    def can_reuse(self, params: GraphParams) -> bool:
        self.mctx = params.mctx.kv(self.part)
        fits = self.k_idxs.ne[0] == params.ubatch.n_tokens
        return fits and self.kq_mask.ne == _mask_ne(params, self.mctx)


def _mask_ne(params: GraphParams, mctx: KVCacheContext) -> tuple[int, int, int, int]:
    n_stream = params.ubatch.n_seqs_unq if mctx.kv.n_stream > 1 else 1
    return (mctx.get_n_kv(), params.ubatch.n_tokens // n_stream, 1, n_stream)


class InputAttnNoCache:
    """Mask of attention within a ubatch (llm_graph_input_attn_no_cache).

    kq_mask  [n_kv, n_tokens], F16 for flash attention, else F32; n_kv is n_tokens rounded up to the
             model's `within_step`
    """

    def __init__(self, params: GraphParams, window: Window | None) -> None:
        n_tokens = params.ubatch.n_tokens
        alibi = params.hparams.max_alibi_bias > 0
        self.rule = MaskRule(params.cparams.causal_attn, window, alibi)
        mask_type = F16 if params.cparams.flash_attn else F32
        name = "self_kq_mask" if window is None else ""
        step = params.hparams.within_step
        self.kq_mask = new_input(name, mask_type, -(-n_tokens // step) * step, n_tokens, 1, 1)

    def set_input(self, ubatch: UBatch) -> None:
        if self.kq_mask.buffer is not None:
            f16, n_kv = self.kq_mask.type is F16, self.kq_mask.ne[0]
            write(self.kq_mask, ubatch_mask(ubatch, self.rule, f16, n_kv))

    def can_reuse(self, params: GraphParams) -> bool:
        return self.kq_mask.ne[1] == params.ubatch.n_tokens


class InputCross:
    """Encoder results and the mask of results that each token may see
    (llm_graph_input_cross_embd, llm_graph_input_attn_cross).

    embd     F32 [n_embd, n_enc]
    kq_mask  [n_enc, n_tokens], F16 for flash attention, else F32
    """

    def __init__(self, params: GraphParams) -> None:
        self.cross = params.cross
        n_enc = self.cross.n_enc
        self.embd = new_input("cross_embd", F32, self.cross.n_embd, n_enc)
        mask_type = F16 if params.cparams.flash_attn else F32
        self.kq_mask = new_input("", mask_type, n_enc, params.ubatch.n_tokens, 1, 1)

    def set_input(self, ubatch: UBatch) -> None:
        write(self.embd, self.cross.embd)
        if self.kq_mask.buffer is None:
            return
        seen = self.cross.visible_tokens(ubatch)
        dtype = np.float16 if self.kq_mask.type is F16 else np.float32
        write(self.kq_mask, np.where(seen, dtype(0), dtype(-np.inf)))

    def can_reuse(self, params: GraphParams) -> bool:
        self.cross = params.cross
        fits = self.embd.ne[1] == self.cross.n_enc
        return fits and self.kq_mask.ne[1] == params.ubatch.n_tokens
