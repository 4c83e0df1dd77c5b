"""Common parts of drafting by a model."""

from __future__ import annotations

from typing import Any

import numpy as np

from ggml_py.errors import ContextError, ModelError
from llama_py.batch import F32
from llama_py.context import Context
from llama_py.decoding.drafting.draft_vocabulary import DraftVocabulary
from llama_py.decoding.drafting.drafter import DrafterSetting
from llama_py.decoding.drafting.vocabulary import check_same_vocabulary
from llama_py.loading.model import LoadedModel
from llama_py.params.speculative import SpeculativeParams

N_CANDIDATES = 10  # most likely tokens that define a draft token's probability


def create_draft_context(
    other: Context, model: LoadedModel, how: SpeculativeParams, **options: Any
) -> Context:
    """Create a context of the draft model with the target context's capacity."""
    p, cp = other.params, other.cparams
    made = Context(
        model,
        n_ctx=cp.n_ctx,
        n_batch=cp.n_batch,
        n_ubatch=cp.n_ubatch,
        n_seq_max=cp.n_seq_max,
        kv_unified=cp.kv_unified,
        flash_attn=p.flash_attn,
        type_k=how.spec_draft_type_k or p.type_k,
        type_v=how.spec_draft_type_v or p.type_v,
        n_threads=p.n_threads,
        n_threads_batch=p.n_threads_batch,
        offload_kqv=p.offload_kqv,
        progress=p.progress,
        fuse=p.fuse,
        **options,
    )
    made.runner.n_graphs = other.runner.n_graphs
    return made


def load_draft_model(setting: DrafterSetting, name: str) -> LoadedModel:
    """Return the draft model for this method.

    Raises ContextError without a draft model, ModelError if vocabulary or devices differ.
    """
    target, model = setting.ctx, setting.model_draft
    if model is None or model.architecture.draft_rules.way != name:
        given = "none" if model is None else f"{model.file.path} ({model.arch})"
        raise ContextError(
            f"{name} needs a draft model of its type; pass it as model_draft (-md), got {given}"
        )
    check_same_vocabulary(target.model, model)
    ours, there = target.model.hparams.n_vocab, model.hparams.n_vocab
    if ours != there:
        raise ModelError(
            f"draft model {model.file.path} must have {ours} tokens like the model, got {there}; "
            "use a draft model of the same family"
        )
    if not set(target.devices) <= set(model.devices):
        raise ModelError(
            f"draft model {model.file.path} must be on the devices of the model "
            f"({target.model.device_names}); load it on them"
        )
    return model


def take_out(ctx: Context, seq_id: int, pos: int, n: int, end: int) -> None:
    """Remove n positions from `pos` on, move later cells before `end` down, and remove the rest."""
    ctx.memory.seq_rm(seq_id, end, -1)
    ctx.memory.seq_shift(seq_id, pos, n)


def likeliest(logits: F32, few: DraftVocabulary | None, p_min: float) -> int | None:
    """Return the most likely token, or None if its probability among the first ten is below p_min.

    few   the tokens that have logits; None: all
    """
    best_one = int(np.argmax(logits))
    if p_min > 0:
        k = min(N_CANDIDATES, logits.size)
        best = np.partition(logits, -k)[-k:].astype(np.float64)
        if 1 / np.exp(best - best.max()).sum() < p_min:
            return None
    return best_one if few is None else int(few.ids[best_one])


def long_enough(drafts: dict[int, list[int]], p: SpeculativeParams) -> dict[int, list[int]]:
    """Return the drafts of at least n_min tokens."""
    least = max(p.spec_draft_n_min, 1)
    return {seq_id: ids for seq_id, ids in drafts.items() if len(ids) >= least}
