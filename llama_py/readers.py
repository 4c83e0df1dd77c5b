"""What reads each weight: found by building a model's graphs before its weights have a place."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np

from ggml_py.null import NullDevice
from ggml_py.tensor import Tensor
from ggml_py.types import F16
from llama_py.batch import ubatch_reserve
from llama_py.cparams import make_cparams
from llama_py.graph.cross import Cross
from llama_py.graph.params import GraphParams, GraphType
from llama_py.graph.result import GraphResult
from llama_py.memory import Placing, create_memory
from llama_py.models._architecture import Architecture

N_TOKENS = 8  # more than one: kernels may differ


def readers_of(arch: Architecture, weights: Iterable[Tensor]) -> dict[int, Sequence[Tensor]]:
    """The nodes that read a weight, by its id; none for one that no graph reads."""
    found: dict[int, list[Tensor]] = {id(t): [] for t in weights}
    gtypes = [gt for gt in arch.gtypes if gt != "decoder_mtp" or arch.can_draft]
    for embeddings in (False, True):
        if all(found.values()):
            break
        for gtype in gtypes:
            for node in _graph(arch, gtype, embeddings).graph.nodes:
                for src in {id(t) for t in node.src if t is not None}:
                    if src in found:
                        found[src].append(node)
    return {**found}


def _graph(arch: Architecture, gtype: GraphType, embeddings: bool) -> GraphResult:
    """embeddings: pooled, with a reranker's scores"""
    hp = arch.hp
    cparams = make_cparams(hp, n_ctx=1, n_ubatch=N_TOKENS)
    if embeddings:
        cparams = replace(cparams, embeddings=True, pooling="rank")
    mtp = gtype == "decoder_mtp"
    layers = range(hp.n_layer, hp.n_layer_all) if mtp else range(hp.n_layer)
    kept = {il: arch.kept(il) for il in layers}
    parts = [NullDevice()] * max(map(len, arch.parts.values()), default=0)
    how = Placing(cparams, lambda _: NullDevice(), F16, F16, parts=parts)
    memory = create_memory(kept, how)
    ubatch = ubatch_reserve(N_TOKENS, 1, hp.n_pos_per_embd)
    encoded = Cross(np.zeros((1, hp.n_embd), np.float32), [(0,)])
    params = GraphParams(hp, cparams, ubatch, memory.init_full(), N_TOKENS, gtype, encoded=encoded)
    return arch.graph(params)
