"""What llama.cpp says of a model: what runs there are of it."""

from __future__ import annotations

from pathlib import Path

from golden import runs
from golden.engines import LlamaCpp
from llama_py.models import architecture


def facts_of(arch: str, path: Path) -> runs.Facts:
    """Asked of llama.cpp, with a first run of a prompt; but whether NextN layers are for drafts
    is known here."""
    with LlamaCpp(path, nodes=True, n_rs_seq=3) as peer:
        api, start = peer.api, None
        decodes = api.llama_model_has_decoder(peer.model)
        if decodes and api.llama_model_has_encoder(peer.model):
            start = max(api.llama_model_decoder_start_token(peer.model), 0)
            peer.run(runs.batch([1, 2]), encode=True)
        peer.run(runs.batch([1, 2] if start is None else [start]))
        drafts = "decoder_mtp" in architecture(arch).gtypes
        unnamed = architecture(arch).names.get("result_output") == ""
        return runs.Facts(
            memory=decodes and bool(api.llama_get_memory(peer.ctx)),
            logits=any(node["name"] == "result_output" for node in peer.nodes) or unnamed,
            start=start,
            delta_net=any(node["op"] == "GATED_DELTA_NET" for node in peer.nodes),
            indexer=any(node["op"] == "LIGHTNING_INDEXER" for node in peer.nodes),
            n_nextn=api.llama_model_n_layer_nextn(peer.model) if drafts else 0,
            rollback=api.llama_n_rs_seq(peer.ctx) > 0,
        )
