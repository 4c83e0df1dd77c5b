"""Bytes and FLOPs of each layer of a model, from its file's metadata."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ggml_py.ops.traffic import count_bytes, flops
from ggml_py.plan.assign import is_view
from llama_py.loading.split.walk import attributes, is_block

if TYPE_CHECKING:
    from ggml_py.tensor import Tensor
    from llama_py.fit.planning import PlannedModel
    from llama_py.loading.model import LoadedModel

_LAYER = re.compile(r"-(\d+)(?: |$)")
_LAST = ("norm", "result_norm", "result_output")  # nodes after all layers


@dataclass(frozen=True, slots=True)
class MachineLimits:
    """Limits of one machine: bytes/s and FLOP/s, and the fraction that graphs of one token and of
    many reach."""

    bandwidth: float
    flops: float
    reached: tuple[float, float] = (1.0, 1.0)

    def seconds(self, nodes: Iterable[tuple[float, float]], n_tokens: int) -> float:
        """Return the seconds of nodes; each takes at least the time of its bytes or its FLOPs."""
        least = sum(max(a / self.bandwidth, b / self.flops) for a, b in nodes)
        return least / self.reached[n_tokens > 1]


@dataclass(frozen=True, slots=True)
class WorkEstimate:
    """Bytes and flops of the nodes of one graph.

    layers  work of each layer;  head  work after the last layer, up to the logits
    """

    n_tokens: int
    layers: Sequence[list[tuple[float, float]]]
    head: list[tuple[float, float]] = field(default_factory=list)

    def seconds(self, limits: MachineLimits) -> tuple[list[float], float]:
        """Return the seconds of the layers, and of the head, on one machine."""
        of_layers = [limits.seconds(nodes, self.n_tokens) for nodes in self.layers]
        return of_layers, limits.seconds(self.head, self.n_tokens)


def estimate_work(model: PlannedModel, n_tokens: int, n_ctx: int) -> WorkEstimate:
    """Return the work of a batch of tokens with logits of the last, in a full context."""
    from llama_py.fit.planning import PlannedContext

    ctx = PlannedContext(model, n_ctx=n_ctx, n_batch=n_tokens, n_ubatch=n_tokens, n_seq_max=1)
    found = min(
        (res for res, *_ in ctx.graphs if res.params.gtype == ctx.gtype),
        key=lambda res: abs(res.params.ubatch.n_tokens - n_tokens),
    )
    work = sorted_out(found.graph.compute_nodes(), n_tokens, model.hparams.n_layer)
    ctx.close()
    return work


def n_sums(model: LoadedModel) -> list[int]:
    """Count the sums of each layer if devices share it: one per block, and one for two parallel
    blocks. Empty if the model has no list of layers."""
    layers = getattr(model.architecture, "layers", [])
    return [
        max(sum(map(is_block, attributes(layer).values())) - hasattr(layer, "side_by_side"), 1)
        for layer in layers
    ]


def sorted_out(nodes: Iterable[Tensor], n_tokens: int, n_layer: int) -> WorkEstimate:
    """Sort nodes by layer: a name ends with its number; a node without one belongs to the layer of
    the node before it. The head has one row in any batch."""
    work = WorkEstimate(n_tokens, [[] for _ in range(n_layer)])
    into = work.layers[0]
    for node in nodes:
        if is_view(node):
            continue
        if node.name in _LAST:
            into = work.head
        elif (found := _LAYER.search(node.name)) and int(found[1]) < n_layer:
            into = work.layers[int(found[1])]
        rows = n_tokens if into is work.head else 1
        into.append((_read(node, rows), flops(node) / rows))
    return work


def _read(node: Tensor, rows: int) -> float:
    """Return the bytes read; a head planned for all rows counts one row."""
    weights = node.src[0].nbytes if node.op == "MUL_MAT" and node.src[0] is not None else 0
    return weights + (count_bytes(node) - weights) / rows
