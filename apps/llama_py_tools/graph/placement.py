"""Command llama-py-graph placement: the device of each tensor and node, with reasons.

A model and a context are created with the usual code on planned devices, so the decisions are
real. The scheduler reports its reasons (ggml_py/plan/assign.py).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ggml_py.opspec import OPS
from ggml_py.plan import assign
from ggml_py.plan.assign import MIN_OFFLOADED_BATCH, Assignment, is_view
from ggml_py.tensor import FLAG_WEIGHT, Tensor
from llama_py_tools.graph.plan import ranges

if TYPE_CHECKING:
    from ggml_py.plan.assign import Causes
    from ggml_py.plan.sched import Layout
    from llama_py.context import Context
    from llama_py.fit.planning import PlannedContext, PlannedModel
    from llama_py.graph.result import GraphResult


@dataclass(frozen=True, slots=True)
class KeptTensor:
    """A tensor that is resident: a weight, or a layer's cache or state."""

    tensor: Tensor
    device: str
    nbytes: int
    why: str


@dataclass(frozen=True, slots=True)
class PlacedNode:
    """A node that is computed. why_not: of devices that are preferred, why it is not there."""

    node: Tensor
    device: str
    cause: str
    why: str
    why_not: dict[str, str]
    split: int


@dataclass(frozen=True, slots=True)
class PlacedSplit:
    """Consecutive nodes on one device, and the copies before them: (name, bytes)."""

    device: str
    nodes: Sequence[Tensor]
    copied: Sequence[tuple[str, int]]

    @property
    def n_bytes(self) -> int:
        return sum(n for _, n in self.copied)


@dataclass(frozen=True, slots=True)
class PlacedGraph:
    """Graph of n_tokens tokens. scratch: contents of each device's compute buffer, the largest
    first."""

    n_tokens: int
    nodes: list[PlacedNode]
    splits: list[PlacedSplit]
    scratch: dict[str, list[Tensor]]

    @property
    def copied_bytes(self) -> int:
        """Bytes that cross from device to device in one run."""
        return sum(split.n_bytes for split in self.splits)


@dataclass(frozen=True, slots=True)
class PlacementReport:
    """All data of the report. use: bytes by device and use, like Context.memory_breakdown."""

    ctx: PlannedContext
    use: dict[str, dict[str, int]]
    weights: list[KeptTensor]
    caches: list[KeptTensor]
    graphs: list[PlacedGraph] = field(default_factory=list)


def report(model: PlannedModel, ctx: PlannedContext) -> PlacementReport:
    """Report the placement of the graph of a full batch, and of one token of each sequence."""
    found = PlacementReport(ctx, ctx.memory_breakdown(), _weights(model), _caches(ctx))
    by_size = {
        res.params.ubatch.n_tokens: _Reasons(
            ctx, res, causes, layout.assignment, found.weights
        ).graph(layout)
        for res, layout, causes in reversed(ctx.graphs)
        if res.params.gtype == ctx.gtype
    }
    found.graphs.extend([*by_size.values()][::-1])
    return found


def _weights(model: PlannedModel) -> list[KeptTensor]:
    place, layers = model.placement, model.layer_devices
    of_layers = {d.name: [il for il, e in enumerate(layers[:-1]) if e is d] for d in model.devices}
    found = []
    for t in model.weights:
        device, cause = place.choice(t, model.readers.get(id(t), ()), layers)
        assert t.buffer is not None, f"{t} has no buffer"
        if place.shares_layers and cause == "layer":
            name, why = _owner(t, model), "shared layers (-sm)"
        else:
            name, why = device.name, _reason(cause, device is place.host, of_layers[device.name])
        found.append(
            KeptTensor(t, name, t.buffer.size, why if place.offload else "the only device")
        )
    return found


def _owner(t: Tensor, model: PlannedModel) -> str:
    assert t.buffer is not None
    return next(d.name for d in model.devices if d.can_read(t.buffer))


def _reason(cause: str, on_host: bool, layers: Sequence[int]) -> str:
    """Return a cause of llama_py.weights.placement as a sentence. layers: the device's layers."""
    if cause == "layer":
        some = f"layers {ranges(layers)}"
        if on_host:
            return f"-ngl leaves {some} on the host"
        return f"{some} are on this device (-ngl, -ts)"
    known = {
        "table": "a lookup table remains on the host, because a batch reads only a few rows",
        "output": "with the output",
        "first layer": "with the first layer",
    }
    return known.get(cause, cause)


def _caches(ctx: Context) -> list[KeptTensor]:
    found = []
    for t in ctx.memory.tensors():
        assert t.buffer is not None
        owner = next(d for d in ctx.devices if d.can_read(t.buffer))
        why = "with its layer" if ctx.cparams.offload_kqv else "-nkvo keeps it on the host"
        found.append(KeptTensor(t, owner.name, t.nbytes, why))
    return found


def _splits(layout: Layout, names: Sequence[str]) -> list[PlacedSplit]:
    return [
        PlacedSplit(
            names[part.device],
            [t for t in part.nodes if not is_view(t)],
            [(source.name, source.nbytes) for source, _ in part.inputs],
        )
        for part in layout.parts
    ]


class _Reasons:
    """Sentences on the nodes of one graph."""

    def __init__(
        self,
        ctx: Context,
        res: GraphResult,
        causes: Causes,
        assignment: Assignment | None,
        weights: Sequence[KeptTensor],
    ) -> None:
        self.ctx, self.res, self.causes, self.assignment = ctx, res, causes, assignment
        self.names = [d.name for d in ctx.devices]
        self.weights = {id(kept.tensor.buffer): kept for kept in weights}
        self.on_host = {id(t) for t in res.on_host}

    def graph(self, layout: Layout) -> PlacedGraph:
        splits = _splits(layout, self.names)
        split_of = {id(t): i for i, split in enumerate(splits) for t in split.nodes}
        computed = [t for t in self.res.graph.compute_nodes() if not is_view(t)]
        nodes = [self._node(t, split_of.get(id(t), 0)) for t in computed]
        n = len(self.names)
        scratch: dict[str, list[Tensor]] = {name: [] for name in self.names}
        for t, arena, _ in layout.memory.placed:
            scratch[self.names[arena % n]].append(t)
        for tensors in scratch.values():
            tensors.sort(key=lambda t: -t.nbytes)
        return PlacedGraph(self.res.params.ubatch.n_tokens, nodes, [*splits], scratch)

    def _node(self, t: Tensor, split: int) -> PlacedNode:
        if self.assignment is None:
            return PlacedNode(t, self.names[0], "alone", "the only device", {}, split)
        at, cause = self.assignment.find_device(t), self.causes.get(id(t), "")
        reasons = {self.names[i]: why for i in range(at) if (why := self._why_not(t, i, cause))}
        return PlacedNode(t, self.names[at], cause, self._explain(t, cause), reasons, split)

    def _explain(self, t: Tensor, cause: str) -> str:
        if cause == assign.WEIGHT:
            kept = self._weight(t)
            return f"{kept.tensor.name} is on this device ({kept.why})"
        if cause == assign.OFFLOADED:
            kept = self._weight(t)
            return (
                f"{kept.tensor.name} is copied from {kept.device} for a batch of {_batch(t)} rows"
            )
        if cause == assign.MEMORY:
            return f"{t.root.name} is on this device"
        if cause == assign.PINNED:
            return "kept on the host" if id(t) in self.on_host else "its layer is on this device"
        known = {
            assign.INPUT: "inputs of a graph are on the host",
            assign.NEAR: "adjacent nodes run on this device",
            assign.UP: "preferred device with the same memory",
            assign.SOURCES: "most of its sources are on this device",
            assign.SEEN: f"{t.root.name} is on this device",
            assign.READER: "the node that reads it runs on this device",
        }
        return known.get(cause, cause)

    def _why_not(self, t: Tensor, i: int, cause: str) -> str:
        assert self.assignment is not None
        device = self.ctx.devices[i]
        if reason := self.assignment.devices.why_not(i, t):
            return f"cannot: {reason}"
        if cause != assign.WEIGHT:
            return f"cannot access {t.root.name} in its buffer" if cause == assign.MEMORY else ""
        kept = self._weight(t)
        where = f"{kept.tensor.name} is on {kept.device} ({kept.why})"
        if kept.device != self.names[-1]:
            return where
        if device.kind != "gpu":
            return f"{where}, which is copied to GPUs only"
        return (
            f"{where}, which is copied for batches of at least {MIN_OFFLOADED_BATCH} rows, got "
            f"{_batch(t)}"
        )

    def _weight(self, t: Tensor) -> KeptTensor:
        return next(
            kept
            for s in t.src
            if s is not None and s.flags & FLAG_WEIGHT and (kept := self.weights.get(id(s.buffer)))
        )


def _batch(t: Tensor) -> int:
    return math.prod(t.ne[i] for i in OPS[t.op].batch)


def as_data(found: PlacementReport) -> dict[str, Any]:
    """Return the report as JSON data."""
    ctx = found.ctx
    devices = [
        {
            "name": d.name,
            "description": d.description,
            "kind": d.kind,
            "free": d.memory()[0],
            **found.use[d.name],
        }
        for d in ctx.devices
    ]
    return {
        "model": str(ctx.model.file.path),
        "architecture": ctx.model.arch,
        "n_ctx": ctx.n_ctx,
        "n_ubatch": ctx.cparams.n_ubatch,
        "n_seq_max": ctx.cparams.n_seq_max,
        "devices": devices,
        "layers": [d.name for d in ctx.model.layer_devices],
        "weights": [_describe_kept(k) for k in found.weights],
        "caches": [_describe_kept(k) for k in found.caches],
        "graphs": [_graph(g) for g in found.graphs],
    }


def _describe_kept(kept: KeptTensor) -> dict[str, Any]:
    t = kept.tensor
    return {
        "name": t.name,
        "type": t.type.name,
        "ne": list(t.ne),
        "device": kept.device,
        "bytes": kept.nbytes,
        "layout": t.layout,
        "why": kept.why,
    }


def _graph(g: PlacedGraph) -> dict[str, Any]:
    return {
        "n_tokens": g.n_tokens,
        "n_splits": len(g.splits),
        "copied_bytes": g.copied_bytes,
        "splits": [
            {"device": s.device, "n_nodes": len(s.nodes), "copied": [*_copies(s)]} for s in g.splits
        ],
        "nodes": [
            {
                "name": n.node.name,
                "op": n.node.op,
                "type": n.node.type.name,
                "ne": list(n.node.ne),
                "device": n.device,
                "split": n.split,
                "cause": n.cause,
                "why": n.why,
                "why_not": n.why_not,
            }
            for n in g.nodes
        ],
    }


def _copies(split: PlacedSplit) -> Iterator[dict[str, Any]]:
    return ({"name": name, "bytes": n} for name, n in split.copied)
