"""Properties of a model in llama.cpp, which select its recorded runs."""

from __future__ import annotations

from pathlib import Path

from dev import tiny_models as tiny
from dev.record.golden import runs
from dev.record.golden.engines import LlamaCpp
from dev.tiny_models._invent import shapes
from llama_py.gguf.file import GGUFFile
from llama_py.hparams import HParams
from llama_py.models import architecture


def facts_of(
    arch: str, path: Path, made: tiny.Tiny, engine: type[LlamaCpp] = LlamaCpp
) -> runs.Facts:
    """Return llama.cpp's properties of a model, after a first run of a prompt.

    llama-py's own definition of the model decides whether NextN layers are used.
    """
    if made.drafts_for is not None:
        return _facts_of_draft(arch, made)
    with engine(path, nodes=True, n_rs_seq=3) as peer:
        api, start = peer.api, None
        decodes = api.llama_model_has_decoder(peer.model)
        if decodes and api.llama_model_has_encoder(peer.model):
            start = max(api.llama_model_decoder_start_token(peer.model), 0)
            peer.run(runs.batch([1, 2]), encode=True)
        peer.run(runs.batch([1, 2] if start is None else [start]))
        kind = architecture(arch)
        with GGUFFile.open(path) as file:
            hp: HParams = kind.HParams(file.metadata, arch)
        drafts = "decoder_mtp" in kind.gtypes and hp.n_layer_nextn > 0
        unnamed = kind.names.get("result_output") == ""
        return runs.Facts(
            memory=decodes and bool(api.llama_get_memory(peer.ctx)),
            logits=any(node["name"] == "result_output" for node in peer.nodes) or unnamed,
            start=start,
            delta_net=any(node["op"] == "GATED_DELTA_NET" for node in peer.nodes),
            indexer=any(node["op"] == "LIGHTNING_INDEXER" for node in peer.nodes),
            streams=any(node["op"] == "DSV4_HC_COMB" for node in peer.nodes),
            n_nextn=api.llama_model_n_layer_nextn(peer.model) if drafts else 0,
            state_width=hp.n_embd_hidden if drafts and hp.n_embd_hidden != hp.n_embd else 0,
            rollback=api.llama_n_rs_seq(peer.ctx) > 0,
        )


def _facts_of_draft(arch: str, made: tiny.Tiny) -> runs.Facts:
    kind = architecture(arch)
    hp: HParams = kind.HParams(tiny.metadata(arch, made), arch)
    encodes, head = "encoder" in kind.gtypes, getattr(hp, "lilicorr", None)
    return runs.Facts(
        logits=False,
        shared=kind.draft_rules.shares_memory,
        enc_width=hp.n_embd_inp_enc * encodes,
        state_width=hp.n_embd_hidden * kind.draft_rules.continues_states,
        block=getattr(hp, "block_size", 0),
        pairs=getattr(hp, "selector_top_k", 0) if head is None else head.top_k,
        anchored=head is not None,
        sure="conf_proj.weight" in shapes(arch, made),
        axes=hp.n_pos_per_embd * (hp.n_pos_per_embd > 1),
    )
