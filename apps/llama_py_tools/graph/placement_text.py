"""Report of `llama-py-graph placement` as text; equal items are joined."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import TYPE_CHECKING

from ggml_py.inspection.dump import find_layer
from ggml_py.plan import assign
from llama_py_tools.graph.layers import find_layers, shape
from llama_py_tools.graph.plan import columns, mib, ranges

if TYPE_CHECKING:
    from llama_py_tools.graph.placement import (
        KeptTensor,
        PlacedGraph,
        PlacedNode,
        PlacedSplit,
        PlacementReport,
    )

N_SCRATCH = 3  # listed tensors of a compute buffer
N_SPLITS = 8  # listed splits
_NUMBER = re.compile(r"(?<=\bblk\.)\d+(?=\.)|(?<=[A-Za-z_]-)\d+\b|(?<=_l)\d+\b|(?<=node_)\d+\b")
_WITH_OTHERS = (assign.NEAR, assign.SEEN, assign.UP, assign.SOURCES, assign.READER)


def text(found: PlacementReport, pattern: str = "") -> Iterator[str]:
    """Yield lines. pattern: selects the nodes to list one by one; "": all nodes, with equal nodes
    joined."""
    yield from _head(found)
    yield ""
    yield from _memory(found)
    yield ""
    yield from _list_kept("weights", found.weights)
    if found.caches:
        yield ""
        yield from _list_kept("memory of the context", found.caches)
    printed: list[list[str]] = []
    for graph in found.graphs:
        yield ""
        yield from _graph(graph)
        if pattern:
            yield from _table(n for n in graph.nodes if re.search(pattern, n.node.name))
            continue
        lines = [*_nodes(graph, [d.name for d in found.ctx.model.layer_devices])]
        if lines in printed:
            yield "  nodes run on the same devices as in the graph above"
            continue
        yield from lines
        printed.append(lines)


def _head(found: PlacementReport) -> Iterator[str]:
    ctx, model = found.ctx, found.ctx.model
    cp, n = ctx.cparams, model.hparams.n_layer_all
    sequences = f", {cp.n_seq_max} sequences" if cp.n_seq_max > 1 else ""
    yield (
        f"{model.file.path}: {model.arch}, {n} layers; context {cp.n_ctx}{sequences}, batches of"
        f" {cp.n_ubatch}"
    )
    for d in ctx.devices:
        yield f"  {d.name}: {d.description}"


def _memory(found: PlacementReport) -> Iterator[str]:
    uses = ("model", "context", "compute")
    rows = [["memory", "weights", "context", "compute", "total", "free", "left"]]
    for d in found.ctx.devices:
        use, free = found.use[d.name], d.memory()[0]
        total = sum(use[u] for u in uses)
        left = [mib(free), mib(free - total)] if free else ["", ""]
        rows.append([f"  {d.name}", *(mib(use[u]) for u in uses), mib(total), *left])
    return iter(columns(rows))


def _list_kept(title: str, kept: Sequence[KeptTensor]) -> Iterator[str]:
    """Yield a heading for tensors on one device for one reason, and a line per tensor name, layers
    joined."""
    yield title
    reasons: dict[tuple[str, str], list[KeptTensor]] = {}
    for k in kept:
        reasons.setdefault((k.device, k.why), []).append(k)
    for (device, why), some in reasons.items():
        yield f"  {device}: {mib(sum(k.nbytes for k in some))}, {why}"
        alike: dict[tuple[str, str], list[KeptTensor]] = {}
        for k in some:
            layout = f", layout {k.tensor.layout}" if k.tensor.layout else ""
            key = (_fold_name(k.tensor.name), f"{shape(k.tensor)}{layout}")
            alike.setdefault(key, []).append(k)
        rows = [
            [f"    {name}", _layers(of), what, mib(sum(k.nbytes for k in of))]
            for (name, what), of in alike.items()
        ]
        yield from columns(rows, (0, 1, 2))


def _layers(kept: Iterable[KeptTensor]) -> str:
    found = ranges(il for k in kept if (il := find_layer(k.tensor)) is not None)
    return found and f"N = {found}"


def _graph(g: PlacedGraph) -> Iterator[str]:
    tokens = "1 token" if g.n_tokens == 1 else f"{g.n_tokens} tokens"
    splits = "1 split" if len(g.splits) == 1 else f"{len(g.splits)} splits"
    yield (
        f"graph of {tokens}: {len(g.nodes)} nodes, {splits}, {mib(g.copied_bytes)} copied "
        "between devices"
    )
    for name, tensors in g.scratch.items():
        if tensors:
            some = ", ".join(f"{t.name} {mib(t.nbytes)}" for t in tensors[:N_SCRATCH])
            yield f"  largest in the compute buffer of {name}: {some}"
    if len(g.splits) > 1:
        yield from _splits(g.splits)


def _splits(splits: Sequence[PlacedSplit]) -> Iterator[str]:
    """Yield the splits, joined if they differ by the layer only; the largest copies first."""
    found: dict[tuple[str, str, str], list[int]] = {}
    for i, s in enumerate(splits):
        copied = ", ".join(f"{_fold_name(name)} {mib(n)}" for name, n in s.copied)
        found.setdefault((s.device, str(len(s.nodes)), copied), []).append(i)
    most = sorted(found.items(), key=lambda item: -sum(splits[i].n_bytes for i in item[1]))
    rows = [["  splits", "", "device", "nodes", "copied there before each"]]
    for key, numbers in most[:N_SPLITS]:
        rows.append([f"  {len(numbers)}", _number_ranges(numbers), *key])
    yield from columns(rows, (1, 2, 4))
    if len(found) > N_SPLITS:
        yield f"  and {sum(len(n) for _, n in most[N_SPLITS:])} others (--json has all)"


def _number_ranges(numbers: Sequence[int]) -> str:
    """Return `3, 5, .. 93`."""
    few = [*numbers[:2], "..", numbers[-1]] if len(numbers) > 3 else numbers
    return ", ".join(map(str, few))


def _nodes(g: PlacedGraph, of_layer: Sequence[str]) -> Iterator[str]:
    """Yield the nodes of each type of layer. of_layer: each layer's device"""
    kinds: dict[tuple[str, ...], list[int]] = {}
    by_layer: dict[int, list[PlacedNode]] = {}
    for n, il in zip(g.nodes, find_layers(n.node for n in g.nodes), strict=True):
        if il is not None:
            by_layer.setdefault(il, []).append(n)
    for il, nodes in by_layer.items():
        kinds.setdefault(tuple(_runs(nodes, of_layer[il])), []).append(il)
    for lines, layers in kinds.items():
        yield f"  layers {ranges(layers)}" if len(layers) > 1 else f"  layer {layers[0]}"
        yield from lines
    yield "  outside of layers"
    yield from _table(n for n in g.nodes if find_layer(n.node) is None)


def _runs(nodes: Sequence[PlacedNode], own: str) -> Iterator[str]:
    """Yield a line for nodes that a device runs in a row; for nodes outside their layer's device, a
    line per cause."""
    for device, run in groupby(nodes, key=lambda n: n.device):
        some = [*run]
        count = "1 node" if len(some) == 1 else f"{len(some)} nodes"
        names = dict.fromkeys(_fold_name(some[i].node.name) for i in (0, -1))
        yield f"    {device:8} {count}, {' .. '.join(names)}"
        if device != own:
            lines = dict.fromkeys(_reason(n) for n in some if n.cause not in _WITH_OTHERS)
            lines |= dict.fromkeys(_reason(n) for n in some if n.why_not and "cannot:" in _not(n))
            yield from (f"      {line}" for line in lines)


def _reason(n: PlacedNode) -> str:
    return _fold_name(f"{n.node.op}: {n.why}{_not(n)}")


def _not(n: PlacedNode) -> str:
    """Return reasons, each with its devices."""
    found: dict[str, list[str]] = {}
    for device, why in n.why_not.items():
        found.setdefault(why, []).append(device)
    return "".join(f"; not {', '.join(devices)}: {why}" for why, devices in found.items())


def _fold_name(name: str) -> str:
    return _NUMBER.sub("N", name)


def _table(nodes: Iterable[PlacedNode]) -> Iterator[str]:
    rows = [[f"    {n.node.name}", n.node.op, n.device, f"{n.why}{_not(n)}"] for n in nodes]
    return iter(columns(rows, range(4)) if rows else ["    no such node"])
