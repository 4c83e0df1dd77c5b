"""Base class of architectures: hyperparameters, blocks with weights, graph, and memory of layers.

A file of this folder defines one subclass of `Architecture` with `arch` set to the value of
general.architecture in files; no other module uses the name.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

from ggml_py._moved import Former, adopt
from ggml_py.errors import ContextError
from ggml_py.tensor import Tensor
from llama_py.blocks.pooling import Classifier, pool, project_pooled
from llama_py.graph.borrowed import TargetTensors
from llama_py.graph.builder import GraphBuilder
from llama_py.graph.linear import Linear
from llama_py.graph.params import GraphParams, GraphType
from llama_py.graph.result import GraphResult
from llama_py.hparams import HParams
from llama_py.hparams.cparams import CParams
from llama_py.memory.specs import Index, KVCacheSpec, MemorySpec, MemorySpecs, StateSpec
from llama_py.models.trunks.rules import Diffusion, DraftRules, QuantizeRules
from llama_py.weights import Weights

AnyHParams = HParams  # within the class that name is the architecture's own


class Architecture(ABC):
    """The blocks of a model, and a builder of their graphs.

    HParams   the class of its hyperparameters
    sizes     llama.cpp's names for models by n_layer, or by (n_layer, n_embd); `size_name`
    names     other names for tensors of shared blocks in its graphs
    draft_names   other names in its draft graph
    gtypes    its graphs: a trunk, and an encoder before it, if any
    has_trunk     False for a file of NextN layers alone
    reads_images  True if it has separate weights for input embeddings
    in_slots      True if its states can be rows of slots (llama_py.memory.slots)
    folds         its name, if llama.cpp computes it with folded weights
                  (llama_py.hparams.hadamard); subclasses have other names
    quantize_rules  types of its matrices after quantization
    draft_rules   draft method, for a model that can only draft
    diffusion     parameters of generation by unmasking, if supported
    start_token   first token of a decoder after an encoded text
    classifier    classifier of a reranker, for a pooled row
    dense_out     projections of embeddings after pooling
    parts         if devices share a layer (llama_py.loading.split): by layer and type of memory
                  the model of each device's part; None for a device without a part
    """

    arch: ClassVar[str]
    HParams: ClassVar[type[AnyHParams]]
    sizes: ClassVar[Mapping[int | tuple[int, int], str]] = {}
    hp: AnyHParams
    names: Mapping[str, str] = {}
    draft_names: Mapping[str, str] = {}
    gtypes: ClassVar[tuple[GraphType, ...]] = ("decoder",)
    quantize_rules: ClassVar[QuantizeRules] = QuantizeRules()
    diffusion: ClassVar[Diffusion | None] = None
    draft_rules: DraftRules = DraftRules()
    reads_images: ClassVar[bool] = False
    in_slots: ClassVar[bool] = False
    folds: ClassVar[str] = ""
    has_trunk: bool = True
    start_token: int = 0
    classifier: Classifier | None = None
    dense_out: Sequence[Linear] = ()

    def __init__(self, hp: AnyHParams, w: Weights, load_mtp: bool = False) -> None:
        """Declare every tensor of the file; with load_mtp also the NextN layers' tensors."""
        self.hp = hp
        self.load_mtp = load_mtp
        self.parts: dict[tuple[int, type], Sequence[Architecture | None]] = {}
        self.declare(w)
        if hp.hadamard is not None:  # a subclass must say itself that its graph is proven
            hp.hadamard.check(self.arch, self.folds == self.arch, w.used_tensors)

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        adopt(cls)

    @abstractmethod
    def declare(self, w: Weights) -> None:
        """Make the blocks, which declare their tensors."""

    @abstractmethod
    def build(self, g: GraphBuilder) -> None:
        """Build the trunk; set g.res.t_logits and g.res.t_embd."""

    @classmethod
    def size_name(cls, hp: AnyHParams) -> str:
        """Return llama.cpp's name for a model of this size, such as "8B" or "35B.A3B", or "?B"
        (llama-model.cpp:llm_type_name)."""
        both = hp.n_layer, hp.n_embd
        return cls.sizes.get(both) or cls.sizes.get(hp.n_layer, "?B")

    def build_encoder(self, g: GraphBuilder) -> None:
        """Build the encoder of an encoder-decoder; set g.res.t_embd."""
        raise ContextError(f"models of architecture {self.arch!r} have no encoder")

    def build_draft(self, g: GraphBuilder) -> None:
        """Build a NextN layer, a layer after the trunk."""
        raise ContextError(
            f"models of architecture {self.arch!r} have no NextN layers; use another spec_type"
        )

    def memory_spec(self, il: int) -> MemorySpecs:
        """Return the memory specs of layer il."""
        shape = self.hp.layers[il]
        if shape.recurrent:
            return (StateSpec(self.hp.n_embd_r, self.hp.n_embd_s, *self.hp.state_sections),)
        if not (self.hp.cached and shape.n_head and shape.n_head_kv):
            return ()
        sizes = shape.n_head_kv, shape.n_embd_head_k, shape.n_embd_head_v
        return (KVCacheSpec(*sizes, shape.window, shape.rope),)

    def sharded_memory_spec(self, il: int) -> MemorySpecs:
        """Return the memory specs of layer il, one per device if devices share the layer."""
        found: list[MemorySpec] = []
        for i, whole in enumerate(self.memory_spec(il)):
            parts = self.parts.get((il, type(whole)))
            if parts is None:
                found.append(whole)
                continue
            mine = {n: part.memory_spec(il)[i] for n, part in enumerate(parts) if part is not None}
            found += _shared_out(whole, mine)
        return tuple(found)

    def rope_factors(self, cparams: CParams, il: int) -> Tensor | None:
        """Return factors of RoPE's frequencies in layer il, F32 [n_rot / 2]."""
        return None

    def graph(self, params: GraphParams) -> GraphResult:
        """Build a graph for one ubatch; ContextError if its layers were not loaded."""
        draft = params.gtype == "decoder_mtp"
        g = GraphBuilder(params, self.draft_names if draft else self.names)
        if draft:
            self._check_draft()
            self.build_draft(g)
        elif params.gtype == "encoder":
            self.build_encoder(g)
        elif not self.has_trunk:
            raise ContextError(
                "the model has only NextN layers, so it can only draft; pass it as model_draft "
                "of its target model"
            )
        else:
            self.build(g)
        if params.cparams.embeddings and g.res.t_embd is not None and not draft:
            pool(g, self.classifier)
            if self.dense_out:
                project_pooled(g, self.dense_out)
        if g.rotations is not None:
            g.rotations.check()
        g.res.set_outputs()
        return g.res

    @classmethod
    def draft_method(cls, names: Iterable[str]) -> str:
        """Return the draft method for a file with tensors of the given names."""
        return cls.draft_rules.way

    def tensors_for_draft(self) -> TargetTensors:
        """Return tensors of this model that a draft-only model may use."""
        return TargetTensors()

    def reads(self, kept: Mapping[int, MemorySpecs]) -> Mapping[int, int]:
        """Return, by layer, the layer of the other model with the keys and values to attend to;
        `kept`: the other model's memory specs. ContextError if they do not fit."""
        return {}

    def placeholder_tensors(self) -> TargetTensors | None:
        """Return placeholders for borrowed tensors, in graphs that are only inspected."""
        return None

    def lm_head(self, nextn: int | None = None) -> Linear | None:
        """Return the LM head's matrix of the trunk, or of NextN layer `nextn`; None if it is not a
        single matrix."""
        return None

    @property
    def can_draft(self) -> bool:
        """True if there is a draft graph and its layers were loaded."""
        return "decoder_mtp" in self.gtypes and self.load_mtp and self.hp.n_layer_nextn > 0

    def _check_draft(self) -> None:
        if "decoder_mtp" not in self.gtypes:
            raise ContextError(
                f"models of architecture {self.arch!r} have no NextN layers; use another spec_type"
            )
        if not self.can_draft:
            raise ContextError(
                f"drafting needs NextN layers, but the model has {self.hp.n_layer_nextn} and "
                f"load_mtp is {self.load_mtp}"
            )

    keeps = Former("memory_spec")
    kept = Former("sharded_memory_spec")
    way_to_draft = Former("draft_method")
    lends = Former("tensors_for_draft")
    stand_in = Former("placeholder_tensors")
    head_of = Former("lm_head")


def _shared_out(whole: MemorySpec, parts: Mapping[int, MemorySpec]) -> Iterator[MemorySpec]:
    """Yield each device's memory spec. All devices keep undivided keys; undivided convolution
    states are on the layer's device, which computes them."""
    for number, mine in parts.items():
        if isinstance(mine, StateSpec) and isinstance(whole, StateSpec):
            if mine.n_embd_r == whole.n_embd_r:
                mine = replace(mine, n_embd_r=0, r_sections=())
                if number == min(parts):
                    yield replace(whole, n_embd_s=0, s_sections=())
            yield replace(mine, part=number)
        elif isinstance(mine, KVCacheSpec | Index):
            yield replace(mine, part=number, copied=mine == whole)
