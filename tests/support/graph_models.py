"""Tiny models without weights, and the graphs a run would build, for tests of nodes only."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from fnmatch import fnmatchcase
from functools import cache
from types import SimpleNamespace
from typing import Any

import numpy as np

from dev import tiny_models as tiny
from dev.tiny_models._invent import NUMBERS, shapes
from ggml_py.backend.null import NullDevice
from ggml_py.types import BY_NAME, F16
from llama_py.batch import Batch
from llama_py.batch.splitter import BatchSplitter
from llama_py.gguf.file import TensorInfo
from llama_py.graph.params import GraphParams
from llama_py.graph.result import GraphResult
from llama_py.hparams.cparams import CParams
from llama_py.hparams.layer_shape import Window
from llama_py.memory import MemoryGroup, Placing, create_memory
from llama_py.memory.specs import MemorySpec
from llama_py.model import Model
from llama_py.params import ContextParams


def stands_for_others(arch: str, variant: str) -> bool:
    """Whether the tests of what every model must do run over this one: new blocks are in it."""
    every = os.environ.get("LLAMA_PY_TEST_MODELS") == "every"
    return every or not tiny.find(arch, variant).familiar


# Of every kind of architecture, without the variants with a NextN layer, and those that only draft.
NAMES = [
    f"{a}-{v}"
    for a, v in tiny.every()
    if v != "mtp" and tiny.find(a, v).drafts_for is None and stands_for_others(a, v)
]


def is_folded(name: str) -> bool:
    """Whether weights are for rotated inputs: tests that change or divide them leave it out."""
    return known(name).hparams.hadamard is not None


def continues(name: str) -> bool:
    """Whether a text may come in pieces, each with logits: layers keep what they have seen, tokens
    see only those before them, and there is no encoder."""
    architecture = known(name).architecture
    in_pieces = architecture.hp.causal_attn and not architecture.hp.decides
    return bool(kept(name)) and in_pieces and "encoder" not in architecture.gtypes


def kept(name: str) -> list[MemorySpec]:
    """What all layers keep."""
    architecture = known(name).architecture
    return [what for il in range(architecture.hp.n_layer) for what in architecture.memory_spec(il)]


Shapes = Mapping[str, Sequence[int]]


def info(name: str, ne: Sequence[int], type: str = "f32") -> TensorInfo:
    """A tensor of a file; its bytes are there in name only."""
    ne4 = (*ne, 1, 1, 1, 1)[:4]
    t = BY_NAME[type]
    nbytes = t.row_size(ne4[0]) * ne4[1] * ne4[2] * ne4[3]
    return TensorInfo(name, t, ne4, 0, nbytes, np.broadcast_to(np.uint8(0), nbytes))


def file_of(metadata: Mapping[str, Any], shapes: Shapes) -> Any:
    """What `Model` needs of a GGUFFile."""
    arch = metadata["general.architecture"]
    whole = [p for a, v in tiny.every() if a == arch for p in tiny.find(a, v).table]

    def of(name: str) -> str:
        if name in NUMBERS:
            return "i64"
        return "i32" if any(fnmatchcase(name, p) for p in whole) else "f32"

    return SimpleNamespace(
        path="tiny.gguf",
        metadata=dict(metadata),
        architecture=arch,
        tensors={name: info(name, ne, of(name)) for name, ne in shapes.items()},
    )


def split(name: str) -> tuple[str, str]:
    """Of a tiny model's name, the architecture and the variant."""
    arch, _, variant = name.rpartition("-")
    return arch, variant


def declared(name: str) -> tuple[dict[str, Any], dict[str, tuple[int, ...]]]:
    """Metadata and tensor shapes of a tiny model."""
    arch, variant = split(name)
    found = tiny.find(arch, variant)
    return tiny.metadata(arch, found), shapes(arch, found)


def load(name: str, **options: Any) -> Model:
    return Model(file_of(*declared(name)), NullDevice(), **options)


@cache
def known(name: str) -> Model:
    """One to ask only."""
    return load(name)


def memory_for(model: Model, cparams: CParams, mtp: bool = False) -> MemoryGroup:
    """The memory a context would make."""
    hp = model.hparams
    layers = range(hp.n_layer, hp.n_layer_all) if mtp else hp.kept_layers
    how = Placing(cparams, lambda _: NullDevice(), F16, F16, hp.n_pos_per_embd)
    return create_memory({il: model.architecture.memory_spec(il) for il in layers}, how)


def params_for(model: Model, memory: Any, batch: Batch, cparams: CParams) -> Iterator[GraphParams]:
    """What each ubatch of a batch is built from; good until the next one is asked for."""
    splitter = BatchSplitter(
        batch,
        n_vocab=model.hparams.n_vocab,
        n_embd=model.hparams.n_embd,
        n_seq_max=cparams.n_seq_max,
        n_pos=model.hparams.n_pos_per_embd,
        memory=memory,
    )
    ctx = memory.init_batch(splitter, cparams.n_ubatch)
    while True:
        ctx.apply()
        ubatch = ctx.get_ubatch()
        yield GraphParams(model.hparams, cparams, ubatch, ctx, int(ubatch.output.sum()))
        if not ctx.next():
            return


def run(
    model: Model,
    n_prompt: int,
    *,
    delta_net: str = "fused",
    n_rs_seq: int = 0,
    flash_attn: bool = True,
) -> list[GraphResult]:
    """The graphs of a prompt and of one more token."""
    cparams = CParams.resolve(
        model.hparams,
        ContextParams(n_ctx=256, n_ubatch=256, n_rs_seq=n_rs_seq, flash_attn=flash_attn),
    )
    cparams = replace(cparams, forms=(("delta_net", delta_net),))
    memory = memory_for(model, cparams)
    batches = (Batch(tokens=[1] * n_prompt), Batch(tokens=[1]))
    return [
        model.architecture.graph(params)
        for batch in batches
        for params in params_for(model, memory, batch, cparams)
    ]


def memory_kinds(name: str) -> frozenset[Hashable]:
    """Kinds of memory of the layers, without sizes."""
    return frozenset(
        (type(what), *(_without_size(getattr(what, one.name)) for one in fields(what)))
        for what in kept(name)
    )


def _without_size(value: Any) -> Hashable:
    if isinstance(value, Window):
        return value.kind
    if isinstance(value, tuple):
        return len(value)
    if isinstance(value, str):
        return value
    return bool(value)


def attention_kinds(name: str) -> Hashable:
    """Kinds of memory, with parameters and numbers of sources of flash attention."""
    nodes = [node for result in run(known(name), 40) for node in result.graph.nodes]
    attention = frozenset(
        (repr(node.params), sum(src is not None for src in node.src))
        for node in nodes
        if node.op == "FLASH_ATTN_EXT"
    )
    return memory_kinds(name), attention


def first_of_each(kind: Callable[[str], Hashable], names: Iterable[str]) -> list[str]:
    """The first name of each kind."""
    found: dict[Hashable, str] = {}
    for name in names:
        found.setdefault(kind(name), name)
    return [*found.values()]


def operations(name: str) -> set[Any]:
    """What a model's graphs compute, and of which types, and what its layers keep."""
    nodes = [t for result in run(known(name), 16) for t in result.graph.nodes]
    types = {(t.op, *(s.type.name for s in t.src if s is not None)) for t in nodes}
    return types | {type(what) for what in kept(name)}


def with_something_new(
    names: Sequence[str], features: Callable[[str], Collection[Any]]
) -> list[str]:
    """Those that have a feature which none before them has: of each feature, some model."""
    found, seen = list[str](), set[Any]()
    for name in names:
        if not seen.issuperset(has := features(name)):
            found.append(name)
            seen.update(has)
    return found


# Those that continue a text; made at last, for it needs what is above.
CONTINUING = [name for name in NAMES if continues(name)]
# Of these, those that can run with flash attention, and those that the real llama.cpp can run.
FLASH = [name for name in CONTINUING if known(name).hparams.flash_attn]
LIVE = [name for name in CONTINUING if not tiny.find(*split(name)).unrecorded]
