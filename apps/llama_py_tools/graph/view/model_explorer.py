"""Conversion of graphs to Google's Model Explorer (its JSON graph format), and of node values to
its node data.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from ggml_py.tensor import Tensor
from llama_py.gguf.metadata import printable
from llama_py_tools.graph.view.data import leaf_kind, params, references
from llama_py_tools.graph.view.overlays import number
from llama_py_tools.graph.view.seen import GraphRecord
from llama_py_tools.graph.view.tree import BlockBox, Item, LayerBox, original, tree

Json = dict[str, Any]
GRADIENT = [{"stop": 0, "bgColor": "#f3f1fb"}, {"stop": 1, "bgColor": "#e0563b"}]


def graphs(seen: Sequence[GraphRecord], title: str) -> Json:
    """Return the file to open: a collection of the graphs of a run."""
    return {"label": printable(title), "graphs": [_graph(i, s) for i, s in enumerate(seen)]}


def node_data(seen: Sequence[GraphRecord]) -> dict[str, Json]:
    """Return files of node data by content: bytes, time in microseconds if measured, and each
    overlay."""
    found = {"bytes": _values(seen, lambda s, i, t: float(t.nbytes))}
    if any(s.seconds for s in seen):
        found["time"] = _values(
            seen, lambda s, i, t: s.seconds[id(t)] * 1e6 if id(t) in s.seconds else None
        )
    for name in dict.fromkeys(name for s in seen for name in s.overlay_names()):
        found[name] = _values(seen, lambda s, i, t, n=name: s.overlays.get(i, {}).get(n))  # type: ignore[misc]
    return found


def _values(
    seen: Sequence[GraphRecord], value: Callable[[GraphRecord, int, Tensor], float | None]
) -> Json:
    return {
        _graph_id(number_, s): {
            "results": {
                str(i): {"value": number(v)}
                for i, t in enumerate(s.graph.nodes)
                if (v := value(s, i, t)) is not None
            },
            "gradient": GRADIENT,
        }
        for number_, s in enumerate(seen)
    }


def _graph_id(number: int, seen: GraphRecord) -> str:
    return f"{number}: {seen.what or 'graph'}"


def _graph(number: int, seen: GraphRecord) -> Json:
    of, devices = references(seen.graph), seen.devices()
    spaces = dict(_namespaces(tree(seen.graph)))
    leafs = [_leaf(-1 - i, t) for i, t in enumerate(seen.graph.leafs)]
    nodes = [
        _node(i, t, of, spaces.get(i, ""), devices.get(id(t), ""))
        for i, t in enumerate(seen.graph.nodes)
    ]
    return {"id": _graph_id(number, seen), "nodes": leafs + nodes}


def _namespaces(items: Sequence[Item], above: str = "") -> Iterator[tuple[int, str]]:
    """Yield for each node the path of the parts it is in."""
    for item in items:
        if isinstance(item, LayerBox):
            for block in item.blocks:
                space = _inside(above, item, block)
                yield from ((i, space) for i in range(block.first, block.last + 1))
            continue
        numbers = [n for turn in item.turns for part in turn for n in _numbers(part)]
        space = f"{above}layers {min(numbers)} to {max(numbers)}/" if numbers else above
        for turn in item.turns:
            yield from _namespaces(turn, space)


def _inside(above: str, layer: LayerBox, block: BlockBox) -> str:
    title = printable(block.title).replace("/", "_")
    parts = [layer.title] if len(layer.blocks) == 1 else [layer.title, title]
    return above + "/".join(parts)


def _numbers(item: Item) -> list[int]:
    if isinstance(item, LayerBox):
        return [] if item.number is None else [item.number]
    return [n for turn in item.turns for part in turn for n in _numbers(part)]


def _node(i: int, t: Tensor, of: dict[int, int], space: str, device: str) -> Json:
    sources = [(k, of.get(id(original(s)))) for k, s in enumerate(t.src) if s is not None]
    attrs = {"name": t.name, **params(t)}
    if device:
        attrs["device"] = device
    if t.view_src is not None:
        attrs["view of"], attrs["view offset"] = t.view_src.name, t.view_offs
    elif t.buffer is not None:
        attrs["buffer offset"] = t.offset
    return _entry(i, t, t.op, space, attrs) | {
        "incomingEdges": [
            {"sourceNodeId": str(s), "sourceNodeOutputId": "0", "targetNodeInputId": str(k)}
            for k, s in sources
            if s is not None
        ]
    }


def _leaf(i: int, t: Tensor) -> Json:
    kind = {"weight": "weights", "input": "inputs", "memory": "memory"}[leaf_kind(t)]
    return _entry(i, t, t.name, kind, {"name": t.name})


def _entry(i: int, t: Tensor, label: str, space: str, attrs: Json) -> Json:
    sizes = {
        "tensor_name": t.name,
        "shape": f"{t.type.name}{list(t.ne)}",
        "strides": list(t.nb),
        "bytes": t.nbytes,
    }
    return {
        "id": str(i),
        "label": printable(label),
        "namespace": space,
        "attrs": _pairs(attrs),
        "outputsMetadata": [{"id": "0", "attrs": _pairs(sizes)}],
    }


def _pairs(values: Json) -> list[Json]:
    return [{"key": key, "value": printable(str(value))} for key, value in values.items()]
