"""The hooks of a context."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

from ggml_py.backend import Device
from ggml_py.errors import ContextError
from ggml_py.plan.taps import Taps, keeps_sources
from ggml_py.tensor import Tensor
from llama_py.batch import UBatch
from llama_py.graph.result import GraphResult
from llama_py.hooks.capture import Capture
from llama_py.hooks.hook import Hook
from llama_py.hooks.names import FoundNode, Names
from llama_py.hooks.patch import Change, Patch
from llama_py.hooks.values import Values, as_leaf, compute_tensor, read

Graphs = Callable[[], list[GraphResult]]
Wants = Callable[[GraphResult], Taps | None]


class RunsGraphs(Protocol):
    """Interface of a context's runner for hooks."""

    ubatch: UBatch | None  # ubatch in computation

    @property
    def devices(self) -> Sequence[Device]: ...
    @property
    def shares_layers(self) -> bool:
        """True if a node has a part, or a copy, on each device."""

    def set_taps(self, taps: Wants | None) -> None:
        """Plan each graph for the values that `taps` requests."""


class Hooks:
    """Active hooks in order, and the taps that they need.

    If any hook is active, the context's runner plans graphs with its taps, without caching.
    """

    def __init__(self, runner: RunsGraphs, graphs: Graphs) -> None:
        """Create an empty list; graphs: builds some of the graphs that will run, to look up
        names."""
        self._runner = runner
        self._graphs = graphs
        self._all: list[Hook] = []

    def capture(self, *patterns: str) -> Capture:
        return Capture(patterns, self.switch, self.value)

    def patch(self, pattern: str, change: Change | Any) -> Patch:
        return Patch(pattern, change, self.switch, self.value)

    @contextmanager
    def tap(self, of: Wants) -> Iterator[None]:
        """Observe the nodes that a function selects of each graph, and no others, within `with`."""
        if self._all:
            raise ContextError(
                "hooks are already in use: values are captured or patched; end the capture or "
                "patch first"
            )
        self._runner.set_taps(of)
        try:
            yield
        finally:
            self._runner.set_taps(None)

    def switch(self, hook: Hook, on: bool) -> None:
        """Put a hook in use; ContextError for a name that no graph has. Or take it away."""
        if on:
            self._check(hook)
        left = [h for h in self._all if h is not hook]
        self._all = [*left, hook] if on else left
        self._runner.set_taps(self.taps if self._all else None)

    def value(self, found: FoundNode) -> Values:
        devices = list(self._runner.devices)
        if found.weights is None:
            return read(found.node, devices)
        sources = [as_leaf(s) for s in found.node.src if s is not None]
        return read(compute_tensor(found.weights(sources), devices), devices)

    def taps(self, res: GraphResult) -> Taps | None:
        """Return the taps of a graph that the hooks need."""
        names = Names(res)
        wanted = [(f, h) for h in self._all for p in h.patterns for f in names.find(p)]
        stops = [f.node for f, h in wanted if h.changes or f.weights]
        # a change may read the sources (HookContext.node)
        sources = [t for t in stops if keeps_sources(t)]
        by_node: dict[int, list[tuple[FoundNode, Hook]]] = {}
        for found, hook in wanted:
            by_node.setdefault(id(found.node), []).append((found, hook))

        def tell(node: Tensor) -> None:
            for found, hook in by_node.get(id(node), ()):
                hook.see(found, self._ubatch)

        return Taps(tell, [f.node for f, _ in wanted], stops, sources) if wanted else None

    @property
    def _ubatch(self) -> UBatch:
        ubatch = self._runner.ubatch
        assert ubatch is not None, "a ubatch must be in progress"
        return ubatch

    def _check(self, hook: Hook) -> None:
        if hook.changes and self._runner.shares_layers:
            raise ContextError(
                "nodes that are split between devices cannot be patched; load the model with "
                "split_mode='layer'"
            )
        graphs = [Names(res) for res in self._graphs()]
        for pattern in hook.patterns:
            found = [f for names in graphs for f in names.find(pattern)]
            if not found:
                similar = ", ".join(dict.fromkeys(s for g in graphs for s in g.similar(pattern)))
                raise ContextError(
                    f"unknown node {pattern!r}; "
                    + (f"known: {similar}" if similar else "list nodes with `llama-py-graph dump`")
                )
            if hook.changes and any(f.weights for f in found):
                raise ContextError(
                    f"{pattern!r} cannot be changed: flash attention does not store it; create "
                    "the context with flash_attn=False"
                )
