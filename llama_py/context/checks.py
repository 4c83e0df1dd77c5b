"""Conversion of a context's options to its graphs' parameters (llama_context::llama_context)."""

from __future__ import annotations

import logging
from dataclasses import replace

from ggml_py.errors import ContextError
from ggml_py.types import F32
from llama_py.blocks.known_forms import check as check_forms
from llama_py.blocks.known_forms import forms
from llama_py.hparams.cparams import CParams, trained_context
from llama_py.hparams.variants import SLOTS
from llama_py.loading.model import LoadedModel
from llama_py.memory.specs import CompressedSpec, StateSpec
from llama_py.models import architecture, known_architectures
from llama_py.params import ContextParams

log = logging.getLogger("llama_py")


def resolve_cparams(model: LoadedModel, p: ContextParams) -> CParams:
    """Return the parameters of all graphs; ContextError for unsupported options."""
    check_forms(p.forms)
    if p.mtp and not model.architecture.load_mtp:
        raise ContextError("mtp needs a model with NextN layers; load it with load_mtp=True")
    if model.architecture.draft_rules.way and p.target is None:
        raise ContextError(
            f"models of architecture {model.arch!r} are draft models; pass this one as "
            "model_draft (-md) of its target model"
        )
    if p.nextn_layer and p.nextn_layer >= model.hparams.n_layer_nextn:
        raise ContextError(
            f"nextn_layer must be in [0, {model.hparams.n_layer_nextn}), the NextN layers of the "
            f"model, got {p.nextn_layer}"
        )
    n_rs_seq = _n_rs_seq(model, p)
    for kind, form in p.forms.items():
        if form == "auto":
            continue
        able = dict.fromkeys((forms()[kind].names[0], *forms()[kind].go_back))
        if n_rs_seq > 0 and form not in able:
            raise ContextError(
                f"n_rs_seq = {n_rs_seq} needs {kind} {' or '.join(able)}: {form} does not store "
                "earlier states"
            )
        if form == SLOTS and not model.architecture.in_slots:
            known = [arch for arch in known_architectures() if architecture(arch).in_slots]
            raise ContextError(
                f"{kind}={form} is not available for architecture {model.arch}, only for "
                f"{', '.join(known)}; use another variant"
            )
    if p.rope_scale and p.rope_freq_scale:
        raise ContextError("rope_scale and rope_freq_scale are inverses; pass only one")
    cparams = CParams.resolve(model.hparams, replace(p, n_rs_seq=n_rs_seq))
    if p.flash_attn in (True, "on") and not cparams.flash_attn:
        log.warning("flash attention is off: architecture %s does not support it", model.arch)
    asked = (p.n_ctx or 0) // (1 if p.kv_unified else p.n_seq_max)
    trained = trained_context(model.hparams, p)
    if asked > trained:
        log.warning(
            "n_ctx = %d per sequence exceeds the model's training context of %d tokens, so "
            "longer output may be nonsense",
            asked,
            trained,
        )
    if n_rs_seq and cparams.n_ubatch <= n_rs_seq:
        raise ContextError(
            f"n_ubatch must be at least n_rs_seq + 1 = {n_rs_seq + 1}, got {cparams.n_ubatch}; "
            "use a larger n_ubatch or a smaller n_rs_seq"
        )
    return cparams


def without_refused(p: ContextParams, cparams: CParams, refused: dict[str, str]) -> CParams:
    """Return parameters without the fused ops that devices refused, if the caller chose "auto".

    refused  reasons by type of op
    """
    separate = {"flash_attn"} & refused.keys() if p.flash_attn == "auto" else set[str]()
    chosen = dict(cparams.forms)
    for kind in refused.keys() - {"flash_attn"}:
        if p.forms.get(kind, "auto") == "auto" and not cparams.n_rs_seq:
            separate.add(kind)
            chosen[kind] = forms()[kind].names[1]
    for what, why in refused.items():
        instead = "separate ops are used" if what in separate else "another device runs it"
        log.warning("the fused op of %s is not supported: %s; %s", what, why, instead)
    if not separate:
        return cparams
    flash = cparams.flash_attn and "flash_attn" not in separate
    return replace(cparams, flash_attn=flash, forms=tuple(sorted(chosen.items())))


def _n_rs_seq(model: LoadedModel, p: ContextParams) -> int:
    """Return the number of earlier states per sequence: as requested, limited by rs_ram; 0 if the
    model rolls back without states."""
    hp, architecture = model.hparams, model.architecture
    layers = range(hp.n_layer, hp.n_layer_all) if p.mtp else hp.kept_layers
    kept = (k for il in layers for k in architecture.sharded_memory_spec(il))
    states = [k for k in kept if isinstance(k, StateSpec | CompressedSpec)]
    if not states or not p.n_rs_seq:
        return 0
    step = p.n_seq_max * sum(k.n_embd_states for k in states) * F32.type_size
    fitting = p.rs_ram * 2**20 // step if p.rs_ram else p.n_rs_seq
    if fitting < p.n_rs_seq:
        log.warning(
            "n_rs_seq = %d needs %.1f MiB of states per token, but rs_ram = %d MiB, so n_rs_seq "
            "is reduced to %d; use a larger rs_ram or fewer sequences",
            p.n_rs_seq,
            step / 2**20,
            p.rs_ram,
            fitting,
        )
    return min(fitting, p.n_rs_seq)
