"""What an architecture is: its hyperparameters, its tensors, its graph.

A file of this folder defines one subclass of `Model` with `arch` set to what files call it in
general.architecture; nothing else in the project knows the name.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from typing import ClassVar, Literal

from ggml_py.backend import Device
from ggml_py.errors import ContextError
from ggml_py.tensor import Tensor
from llama_py.gguf_file import GGUFFile
from llama_py.hparams import HParams
from llama_py.inputs import GraphParams, GraphResult
from llama_py.models._attention import Attention
from llama_py.models._ffn import FeedForward
from llama_py.models._graph import GraphContext
from llama_py.models._recurrent import Recurrent
from llama_py.placement import Placement
from llama_py.weights import Layer, Linear, Progress, WeightLoader

log = logging.getLogger("llama_py")

MemoryKind = Literal["kv", "recurrent", "hybrid"]


class GraphBuilder(Attention, FeedForward, Recurrent):
    """All the blocks that architectures share, named as in llama-graph.cpp."""


class Model(ABC):
    """Weights on devices, and how to build graphs that use them.

    layers     one per layer that is run, then the NextN layers if they were loaded
    memory     what a context keeps between ubatches
    supports_rs_rollback  whether the recurrent state can be taken back a few tokens
    placement  the devices in use; layer_devices: that of each layer, at the end of the output
    sizes      bytes of weights by device name
    n_params, n_bytes     of the loaded tensors
    """

    arch: ClassVar[str]
    hparams_class: ClassVar[type[HParams]]
    memory: ClassVar[MemoryKind] = "kv"
    supports_rs_rollback: ClassVar[bool] = False

    token_embd: Tensor  # [n_embd, n_vocab]
    output_norm: Tensor  # [n_embd]
    output: Linear  # [n_embd, n_vocab]

    def __init__(
        self,
        file: GGUFFile,
        where: Device | Placement,
        *,
        load_mtp: bool = False,
        progress: Progress | None = None,
    ) -> None:
        """Raises HParamsError and WeightsError before anything is allocated."""
        self.hparams = self.hparams_class(file.metadata, self.arch)
        self.placement = where if isinstance(where, Placement) else Placement((where,))
        self.layer_devices = self.placement.layers(self.hparams.n_layer_all)
        self.load_mtp = load_mtp
        weights = WeightLoader(file.tensors, str(file.path))
        self.load_tensors(weights)
        weights.finish()
        weights.place(self.placement.device_of(self.layer_devices), progress)
        self.infos = file.tensors
        self.sizes = weights.sizes
        self.layers: list[Layer] = weights.layers
        self.n_params = weights.n_params
        self.n_bytes = weights.n_bytes
        self._log_load()

    def _log_load(self) -> None:
        n, n_all = self.placement.n_offloaded(self.hparams.n_layer_all), len(self.layer_devices)
        if self.placement.offload:
            if n:
                log.info("load_tensors: offloading output layer to GPU")
            log.info("load_tensors: offloading %d repeating layers to GPU", max(n - 1, 0))
            log.info("load_tensors: offloaded %d/%d layers to GPU", n, n_all)
        for name, size in self.sizes.items():
            log.info("load_tensors: %12s model buffer size = %8.2f MiB", name, size / 2**20)

    @abstractmethod
    def load_tensors(self, w: WeightLoader) -> None:
        """Declare every tensor of the file."""

    @abstractmethod
    def graph(self, params: GraphParams) -> GraphContext:
        """The builder of the trunk."""

    def draft_graph(self, params: GraphParams) -> GraphContext:
        """The builder of the NextN layer, which is the one after the trunk."""
        raise ContextError(f"models of architecture {self.arch!r} cannot draft by themselves")

    def build(self, params: GraphParams) -> GraphResult:
        """A new graph for one ubatch. ContextError for a draft graph without its one layer."""
        if params.gtype == "decoder_mtp":
            builder = self.draft_graph(params)
            if not self.load_mtp or self.hparams.n_layer_nextn != 1:
                raise ContextError(
                    f"drafting needs one NextN layer; the model has {self.hparams.n_layer_nextn}, "
                    f"and load_mtp was {self.load_mtp}"
                )
        else:
            builder = self.graph(params)
        builder.build()
        builder.res.set_outputs()
        return builder.res

    def load_embeddings(self, w: WeightLoader, output_bias: bool = False) -> None:
        """Declare the tensors around the layers."""
        n_embd, n_vocab = self.hparams.n_embd, self.hparams.n_vocab
        self.token_embd = w.tensor("token_embd.weight", n_embd, n_vocab, use="GET_ROWS")
        self.output_norm = w.tensor("output_norm.weight", n_embd, use="MUL")
        self.output = w.output(n_embd, n_vocab, bias=output_bias)
