"""Nodes that read each weight, found by building a model's graphs before its weights are placed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np

from ggml_py.backend.null import NullDevice
from ggml_py.tensor import Tensor
from ggml_py.types import F16
from llama_py.adapters.lora import NO_LORAS, Loras
from llama_py.batch import ubatch_reserve
from llama_py.graph.cross import Cross
from llama_py.graph.params import GraphParams, GraphType
from llama_py.graph.result import GraphResult
from llama_py.hparams.cparams import CParams
from llama_py.memory import Placing, create_memory
from llama_py.models.trunks.architecture import Architecture
from llama_py.params import ContextParams

DRAFT: GraphType = "decoder_mtp"
N_TOKENS = 8  # more than one: kernels may differ


def find_weight_users(
    arch: Architecture, weights: Iterable[Tensor], loras: Loras = NO_LORAS
) -> dict[int, Sequence[Tensor]]:
    """Return the nodes that read each weight, by its id.

    loras  adapters that the graphs are built with
    """
    found: dict[int, list[Tensor]] = {id(t): [] for t in weights}
    graphs = [(gtype, 0) for gtype in arch.gtypes if gtype != DRAFT and arch.has_trunk]
    if arch.can_draft:
        graphs += [(DRAFT, layer) for layer in range(arch.hp.n_layer_nextn)]
    for embeddings in (False, True):
        if all(found.values()):
            break
        for gtype, layer in graphs:
            _note(found, _graph(arch, gtype, embeddings, layer, loras))
    if arch.reads_images:
        _note(found, _graph(arch, "decoder", False, 0, loras, image=True))
    return {**found}


def _note(found: dict[int, list[Tensor]], result: GraphResult) -> None:
    for node in result.graph.nodes:
        for src in {id(t) for t in node.src if t is not None}:
            if src in found:
                found[src].append(node)


def _graph(
    arch: Architecture,
    gtype: GraphType,
    embeddings: bool,
    nextn_layer: int,
    loras: Loras,
    image: bool = False,
) -> GraphResult:
    """Build a graph; embeddings: pooled, with a reranker's scores; image: input is embeddings."""
    hp = arch.hp
    options = ContextParams(n_ctx=1, n_ubatch=N_TOKENS, nextn_layer=nextn_layer)
    if embeddings:
        options = replace(options, embeddings=True, pooling="rank")
    cparams = CParams.resolve(hp, options)
    mtp = gtype == "decoder_mtp"
    layers = range(hp.n_layer, hp.n_layer_all) if mtp else hp.kept_layers
    kept = {il: arch.sharded_memory_spec(il) for il in layers}
    parts = [NullDevice()] * max(map(len, arch.parts.values()), default=0)
    how = Placing(cparams, lambda _: NullDevice(), F16, F16, parts=parts)
    memory = create_memory(kept, how)
    ubatch = ubatch_reserve(N_TOKENS, 1, hp.n_pos_per_embd)
    if image:
        rows = np.zeros((N_TOKENS, hp.n_embd_inp), np.float32)
        ubatch = replace(ubatch, token=None, embd=rows)
    encoded = Cross(np.zeros((1, hp.n_embd), np.float32), [(0,)])
    mctx = memory.init_full()
    lent = arch.placeholder_tensors()
    params = GraphParams(
        hp, cparams, ubatch, mctx, N_TOKENS, gtype, encoded=encoded, loras=loras, lent=lent
    )
    return arch.graph(params)
