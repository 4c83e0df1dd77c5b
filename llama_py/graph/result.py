"""Results of building a graph (llama-graph.h:llm_graph_result)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TypeVar

from ggml_py.backend import host_array
from ggml_py.graph import Graph
from ggml_py.tensor import FLAG_OUTPUT, Tensor
from llama_py.batch import F32, UBatch
from llama_py.graph.inputs.base import Follows, GraphInput
from llama_py.graph.params import GraphParams

Input = TypeVar("Input", bound=GraphInput)
Weights = Callable[[Sequence[Tensor]], Tensor]


class GraphResult:
    """A built graph with its inputs, and the tensors to read after a run (llm_graph_result).

    t_logits   [n_vocab, n_outputs]
    t_embd     [n_embd, n_outputs] input of the LM head
    t_embd_pooled  [n_embd, n_seqs] one row per sequence, with pooling "none" per output
    t_h_nextn  [n_embd, n_tokens or n_outputs] input of the NextN layer, if any
    t_layer_inp  [n_embd, n_tokens] inputs of layers, by layer; the last: the final result
    in_layer   nodes that must run on the layer's device, which prevents an early device change
    on_host    nodes that must run on the host
    in_part    nodes of a device's part of a block, with the number of the device
    of_host_keys  ids of nodes that attend to keys on the host: the scheduler decides, in parts too
    attention  attention nodes without stored weights, by layer, and a builder of the weights
               from the node's sources
    fused      nodes with alternatives, by the form that decides (see llama_py.hparams.variants)
    """

    def __init__(self, params: GraphParams) -> None:
        self.params = params
        self.graph = Graph()
        self.inputs: list[GraphInput] = []
        self._follow: list[Callable[[UBatch], None]] | None = None
        self.t_logits: Tensor | None = None
        self.t_embd: Tensor | None = None
        self.t_embd_pooled: Tensor | None = None
        self.t_h_nextn: Tensor | None = None
        self.t_layer_inp: dict[int, Tensor] = {}
        self.in_layer: list[tuple[Tensor, int]] = []
        self.on_host: list[Tensor] = []
        self.in_part: list[tuple[Tensor, int]] = []
        self.of_host_keys: set[int] = set()
        self.attention: dict[int, tuple[Tensor, Weights]] = {}
        self.fused: defaultdict[str, list[Tensor]] = defaultdict(list)

    def add_input(self, inp: Input) -> Input:
        self.inputs.append(inp)
        return inp

    def set_outputs(self) -> None:
        """Mark results that are read after the run, which must not overwrite them."""
        layers = map(self.t_layer_inp.get, self.params.cparams.embeddings_layer_inp)
        for t in (self.t_logits, self.t_embd, self.t_embd_pooled, self.t_h_nextn, *layers):
            while t is not None:
                t.flags |= FLAG_OUTPUT
                t = t.view_src

    def set_inputs(self, ubatch: UBatch) -> None:
        for inp in self.inputs:
            inp.set_input(ubatch)

    def follow(self, ubatch: UBatch) -> None:
        """Set inputs for the next tokens, if this memory was not used after the last run."""
        if self._follow is None:
            self._follow = [_follow(inp) for inp in self.inputs]
        for follow in self._follow:
            follow(ubatch)

    @cached_property
    def logits_here(self) -> F32 | None:
        """View of the logits [n_outputs, n_vocab] in host memory; None if they are elsewhere."""
        values = None if self.t_logits is None else host_array(self.t_logits)
        return None if values is None else values.reshape(-1, values.shape[-1])

    def can_reuse(self, params: GraphParams) -> bool:
        """Return True if this graph can be reused for params; binds its inputs to their memory."""
        return self.params.allow_reuse(params) and all(
            [inp.can_reuse(params) for inp in self.inputs]
        )


def _follow(inp: GraphInput) -> Callable[[UBatch], None]:
    return inp.follow if isinstance(inp, Follows) else inp.set_input
