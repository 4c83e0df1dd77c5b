"""Batches for the wheel's extended batch: marked tokens, and tokens mixed with embeddings."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from ggml_py.errors import GGMLError
from llama_py.batch import Batch

SET_MARK = "_Z34llama_batch_ext_set_decision_orderP15llama_batch_exti20llama_decision_order"
ENCODE, DECODE = 0, 1


def is_extended(batch: Batch) -> bool:
    """Return True if a llama_batch cannot represent this batch."""
    return batch.marks is not None or (batch.tokens is not None and -1 in [*batch.tokens])


def run_extended(api: Any, ctx: Any, batch: Batch, encode: bool, embeddings: bool) -> None:
    """Run a batch of tokens, with marks, or with embeddings in place of the tokens -1.

    embeddings  outputs are embeddings instead of logits
    """
    assert batch.tokens is not None and batch.seq_ids is not None and batch.outputs is not None
    set_output = api.llama_batch_ext_set_output_logits
    if embeddings:
        set_output = api.llama_batch_ext_set_output_embd
    native, rows = api.llama_batch_ext_init(ctx), iter(_rows(api, batch))
    for i, (token, ids) in enumerate(zip(batch.tokens, batch.seq_ids, strict=True)):
        first, *others = ids
        if token == -1:
            api.llama_batch_ext_add_embd(native, first, next(rows))
        else:
            api.llama_batch_ext_add_token(native, first, int(token))
        for seq_id in others:
            api.llama_batch_ext_add_seq(native, i, seq_id)
        api.llama_batch_ext_set_pos(native, i, _position(batch, i))
        set_output(native, i, bool(batch.outputs[i]))
    _set_marks(api, native, batch)
    code = api.llama_process(ctx, ENCODE if encode else DECODE, native)
    api.llama_batch_ext_free(native)
    if code:
        raise GGMLError(f"llama.cpp cannot process {len(batch.tokens)} entries: {code}")


def _rows(api: Any, batch: Batch) -> list[Any]:
    """Return the rows of embeddings as structs llama_embd."""
    kind = api.llama_batch_ext_add_embd.argtypes[2]
    values = np.ascontiguousarray(() if batch.embd is None else batch.embd, np.float32)
    pointer = ctypes.POINTER(ctypes.c_float)
    return [kind(row.ctypes.data_as(pointer), 1, row.size) for row in values]


def _position(batch: Batch, i: int) -> Any:
    """Return an entry's position on four axes. A text has the same one on the first three."""
    pos = np.asarray(batch.pos)
    p = int(pos.reshape(-1, pos.shape[-1])[0, i])
    axes = (p, p, p, 0) if pos.ndim == 1 else map(int, pos[:, i])
    return (ctypes.c_int32 * 4)(*axes)


def _set_marks(api: Any, native: Any, batch: Batch) -> None:
    set_mark = api.llama_cpp._lib[SET_MARK]
    set_mark.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_int]
    for i, mark in enumerate(() if batch.marks is None else batch.marks):
        set_mark(native, i, int(mark))
