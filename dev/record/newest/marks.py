"""Batches with marked tokens, by the wheel's extended batch."""

from __future__ import annotations

import ctypes
from typing import Any

from ggml_py.errors import GGMLError
from llama_py.batch import Batch

SET_MARK = "_Z34llama_batch_ext_set_decision_orderP15llama_batch_exti20llama_decision_order"
ENCODE, DECODE = 0, 1


def run_marked(api: Any, ctx: Any, batch: Batch, encode: bool) -> None:
    """Run a batch of one sequence with marks."""
    assert batch.tokens is not None and batch.pos is not None and batch.marks is not None
    set_mark = api.llama_cpp._lib[SET_MARK]
    set_mark.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_int]
    native = api.llama_batch_ext_init(ctx)
    for i, token in enumerate(batch.tokens):
        api.llama_batch_ext_add_token(native, 0, int(token))
        pos = int(batch.pos[i])  # the first three of several axes, of text
        api.llama_batch_ext_set_pos(native, i, (ctypes.c_int32 * 4)(pos, pos, pos, 0))
        api.llama_batch_ext_set_output_embd(native, i, True)
        set_mark(native, i, int(batch.marks[i]))
    code = api.llama_process(ctx, ENCODE if encode else DECODE, native)
    api.llama_batch_ext_free(native)
    if code:
        raise GGMLError(f"llama.cpp cannot run {len(batch.marks)} marked tokens: {code}")
