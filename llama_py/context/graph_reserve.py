"""Largest graphs of a context, which determine the compute buffers
(llama_context::sched_reserve)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from llama_py.batch import UBatch, ubatch_reserve
from llama_py.graph.cross import Cross
from llama_py.graph.params import GraphParams
from llama_py.hparams import HParams
from llama_py.hparams.cparams import CParams
from llama_py.loading.model import LoadedModel
from llama_py.memory import GroupContext, MemoryGroup

ParamsOf = Callable[[UBatch, GroupContext, int], GraphParams]  # the last: number of outputs


def full_params(
    model: LoadedModel,
    params_of: ParamsOf,
    memory: MemoryGroup,
    n_tokens: int,
    n_seqs: int,
    n_used: int | None = None,
) -> GraphParams:
    """Return the parameters of the largest graph for n_tokens tokens, all outputs, and a full
    memory or n_used cells."""
    hp = model.hparams
    ubatch = ubatch_reserve(-(-n_tokens // n_seqs), n_seqs, hp.n_pos_per_embd)
    mctx = memory.init_full(n_seqs)
    if n_used is not None:
        mctx.as_if(n_used)
    params = params_of(ubatch, mctx, ubatch.n_tokens)
    if not model.has_encoder:
        return params
    return replace(params, encoded=_longest_text(hp, params.cparams))


def reserve_params(
    model: LoadedModel, params_of: ParamsOf, memory: MemoryGroup, cp: CParams
) -> list[GraphParams]:
    """Return the largest graphs besides the next token's: encoder, all sequences, one sequence."""
    n_seqs, n_tokens = cp.n_seq_max, min(cp.n_ctx, cp.n_ubatch)
    # one sequence may need more than all together: some inputs grow with its length
    shapes = dict.fromkeys([(n_tokens, n_seqs), (n_tokens, 1)])
    full = [full_params(model, params_of, memory, *s) for s in shapes if s != (n_seqs, n_seqs)]
    if model.has_encoder:
        text = full_params(model, params_of, memory, n_tokens, 1)
        full.insert(0, replace(text, gtype="encoder"))
    return full


def _longest_text(hp: HParams, cp: CParams) -> Cross:
    """Return an encoder result for a text of the training length, limited to a ubatch."""
    n = min(hp.n_ctx_train, cp.n_ubatch)
    return Cross(np.broadcast_to(np.float32(0), (n, hp.n_embd)), [(0,)] * n)
