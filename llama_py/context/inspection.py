"""Inspection and modification of a running model: node values, and logits of any layer."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from ggml_py._moved import Former
from ggml_py.errors import ContextError
from ggml_py.plan.taps import Taps
from llama_py.batch import UBatch
from llama_py.context.graph_reserve import full_params
from llama_py.context.runner import Runner
from llama_py.graph.params import GraphParams
from llama_py.graph.result import GraphResult
from llama_py.hparams.cparams import CParams
from llama_py.loading.model import LoadedModel
from llama_py.memory import GroupContext, MemoryGroup

if TYPE_CHECKING:
    from llama_py.hooks import Capture, Hooks, Patch
    from llama_py.hooks.patch import Change
    from llama_py.hooks.unembed import Unembedding


class InspectionMixin(ABC):
    """Context part for inspecting graphs; it imports its modules on first use."""

    model: LoadedModel
    cparams: CParams
    memory: MemoryGroup
    runner: Runner

    @abstractmethod
    def _graph_params(self, ubatch: UBatch, mctx: GroupContext, n_outputs: int) -> GraphParams: ...

    @cached_property
    def _hooks(self) -> Hooks:
        from llama_py.hooks import Hooks  # few contexts have any

        return Hooks(self.runner, self._some_graphs)

    def capture(self, *names: str) -> Capture:
        """Capture the values of nodes within `with`; see llama_py.hooks.

        Raises ContextError for a name that no node has.
        """
        return self._hooks.capture(*names)

    def patch(self, name: str, change: Change | Any) -> Patch:
        """Replace the values of nodes within `with`: by change(value, at), or by an array.
        See llama_py.hooks.

        Raises ContextError for a name that no node has, and in `decode` for a value that does not
        fit.
        """
        return self._hooks.patch(name, change)

    def tap(self, of: Callable[[GraphResult], Taps | None]) -> AbstractContextManager[None]:
        """Observe nodes that a function chooses in each graph (ggml_py.plan.taps), within `with`.
        ContextError while values are captured or patched."""
        return self._hooks.tap(of)

    @cached_property
    def unembed(self) -> Unembedding:
        """Return a function from rows of the residual stream [n, n_embd] to logits [n, n_vocab], by
        the model's last norm and head; see llama_py.steering.lens."""
        from llama_py.hooks.unembed import Unembedding

        return Unembedding(self._full_graph, self.model.devices)

    def set_embeddings_layer_inp(self, layers: Iterable[int]) -> None:
        """Set the layers with inputs that decode returns in `layer_inp`; n_layer: the last layer's
        result. ContextError for a model that does not provide them."""
        wanted, hp = tuple(sorted(set(layers))), self.model.hparams
        found = self._full_graph(1).t_layer_inp if wanted else {}
        for il in wanted:
            if il not in found or found[il].ne[:2] != (hp.n_embd, 1):
                raise ContextError(
                    f"models of architecture {self.model.arch!r} do not expose the input of "
                    f"layer {il} of {hp.n_layer}"
                )
        self.cparams = replace(self.cparams, embeddings_layer_inp=wanted)

    @property
    def gives_nextn(self) -> bool:
        """True if the model provides `h_nextn`."""
        return self._full_graph(1).t_h_nextn is not None

    def _some_graphs(self) -> list[GraphResult]:
        """Return a graph for one token, and a graph for several."""
        several = min(self.cparams.n_ubatch, 64, self.cparams.n_ctx)
        return [self._full_graph(n) for n in (1, several)]

    def _full_graph(self, n_tokens: int) -> GraphResult:
        """Return the graph of n_tokens outputs of one sequence, as if memory were full."""
        params = full_params(self.model, self._graph_params, self.memory, n_tokens, 1)
        return self.model.architecture.graph(params)

    tapped = Former("tap")
