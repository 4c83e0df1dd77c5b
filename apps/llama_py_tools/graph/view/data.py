"""Data of the page's graphs; docs/graph-view.md describes them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ggml_py.graph import Graph
from ggml_py.opspec import OPS
from ggml_py.tensor import FLAG_COMPUTE, FLAG_INPUT, FLAG_OUTPUT, FLAG_WEIGHT, Tensor
from llama_py.gguf.metadata import printable
from llama_py_tools.graph.view.families import family, meaning
from llama_py_tools.graph.view.memory import Memory, memories
from llama_py_tools.graph.view.overlays import number
from llama_py_tools.graph.view.seen import GraphRecord
from llama_py_tools.graph.view.tree import BlockBox, Item, LayerBox, original, tree

Data = dict[str, Any]


def page_data(
    graphs: Sequence[GraphRecord], title: str, facts: Sequence[tuple[str, str]] = ()
) -> Data:
    """Return all data of a page. facts: about the model, one line each."""
    ops = dict.fromkeys(t.op for seen in graphs for t in seen.graph.nodes)
    return {
        "title": printable(title),
        "facts": [[printable(key), printable(value)] for key, value in facts],
        "ops": {op: {"family": family(op), "meaning": meaning(op)} for op in ops},
        "graphs": [graph_data(seen) for seen in graphs],
    }


def graph_data(seen: GraphRecord) -> Data:
    graph, made = seen.graph, _Records(seen)
    return {
        "what": seen.what,
        "nodes": [made.node(i, t) for i, t in enumerate(graph.nodes)],
        "leafs": [made.leaf(t) for t in graph.leafs],
        "tree": [_item(item) for item in tree(graph)],
        "memory": [made.memory(m) for m in memories(seen)],
        "timed": bool(seen.seconds),
        "overlays": [printable(name) for name in seen.overlay_names()],
    }


def references(graph: Graph) -> dict[int, int]:
    """Return numbers of tensors by id: i for a node, -1 - i for a leaf."""
    nodes = {id(t): i for i, t in enumerate(graph.nodes)}
    return nodes | {id(t): -1 - i for i, t in enumerate(graph.leafs)}


def params(t: Tensor) -> dict[str, Any]:
    """Return op parameters by name."""
    named = dict(zip(OPS[t.op].fields, t.params, strict=False)) if t.op in OPS else {}
    return {k: number(v) if isinstance(v, float) else v for k, v in named.items()}


def leaf_kind(leaf: Tensor) -> str:
    """Return "weight", "input", or "memory", which a context keeps."""
    if leaf.flags & FLAG_WEIGHT:
        return "weight"
    return "input" if leaf.flags & FLAG_INPUT else "memory"


class _Records:
    """Makes the records of one graph's tensors."""

    def __init__(self, seen: GraphRecord) -> None:
        self.seen = seen
        self.of = references(seen.graph)
        self.devices = seen.devices()
        self.steps = seen.last_of_step()

    def node(self, i: int, t: Tensor) -> Data:
        record = self._tensor(t) | {
            "op": t.op,
            "src": [None if s is None else self.of.get(id(original(s))) for s in t.src],
            "params": params(t),
        }
        more: Data = {
            "view": OPS[t.op].view,
            "idle": not t.flags & FLAG_COMPUTE,
            "output": bool(t.flags & FLAG_OUTPUT),
            "device": self.devices.get(id(t)),
            "step": self.of.get(id(self.steps.get(id(t)))),
            "us": round(self.seen.seconds[id(t)] * 1e6, 3) if id(t) in self.seen.seconds else None,
            "kernels": sorted(set(self.seen.kernels.get(id(t), ()))),
            "copied": [k for k, s in enumerate(t.src) if s is not None and original(s) is not s],
            "between": self._source_devices(t),
            "overlay": {printable(k): number(v) for k, v in self.seen.overlays.get(i, {}).items()},
        }
        return record | {key: value for key, value in more.items() if value not in (None, [], {})}

    def _source_devices(self, t: Tensor) -> list[str]:
        """Return other devices that provide sources: a copy, or a part of a sum."""
        own, is_sum = self.devices.get(id(t)), "receivers" in OPS[t.op].fields
        found = {
            self.devices.get(id(original(s)))
            for s in t.src
            if s is not None and (is_sum or original(s) is not s)
        }
        return sorted(name for name in found if name is not None and name != own)

    def leaf(self, t: Tensor) -> Data:
        return self._tensor(t) | {"kind": leaf_kind(t)}

    def _tensor(self, t: Tensor) -> Data:
        record: Data = {
            "name": printable(t.name),
            "type": t.type.name,
            "ne": t.ne,
            "nb": t.nb,
            "bytes": t.nbytes,
        }
        if t.view_src is not None:
            record["root"], record["offs"] = self.of.get(id(t.view_src)), t.view_offs
        if t.buffer is not None:
            record["at"] = t.offset
        if t.layout:
            record["layout"] = t.layout
        return record

    def memory(self, m: Memory) -> Data:
        peak, at = m.peak
        order = {} if m.order == sorted(m.order) else {"order": m.order}
        return {
            "device": m.device,
            "kind": m.kind,
            "size": m.size,
            "peak": peak,
            "peak_at": at,
            "alive": m.alive,
            **order,
            "places": [
                [self.of.get(id(original(p.tensor))), p.first, p.last, p.offset, p.size]
                for p in m.places
            ],
        }


def _item(item: Item) -> Data:
    if isinstance(item, LayerBox):
        return {
            "title": item.title,
            "number": item.number,
            "blocks": [_block(b) for b in item.blocks],
        }
    return {"turns": [[_item(part) for part in turn] for turn in item.turns]}


def _block(block: BlockBox) -> Data:
    return {
        "title": printable(block.title),
        "first": block.first,
        "last": block.last,
        "like": block.signature,
    }
