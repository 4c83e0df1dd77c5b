"""Comparison of two runs: nodes with different values, and nodes that cause an error.

A node's `error` is the distance between its values in both runs. It includes the errors of its
sources, so it grows from node to node. `made` is the error that the node itself adds. It is
available only if the node was computed from the other run's values. A node is wrong if rounding
cannot explain `made`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from ggml_py.graph import Graph
from ggml_py.inspection.dump import Record
from ggml_py.inspection.judge import Error, compare_values
from ggml_py.tensor import Tensor
from ggml_py.types import F32
from llama_py_tools.graph.diff.numbers import Stats, Values, is_whole, node_type, rounding
from llama_py_tools.graph.diff.run import Key, RecordedRun
from llama_py_tools.graph.diff.steps import Mask
from llama_py_tools.graph.layers import groups

BEFORE, AFTER = "before layers", "after layers"
ALONG = 1e-3  # bound of errors that include the errors of sources


@dataclass(slots=True)
class SharedNode:
    """Node that both runs computed.

    layer   title of its layer, BEFORE or AFTER
    bound   bound of `made`, or of `error` if `made` is None
    error   error of its value if both runs are independent
    made    error if computed from the other run's sources; None: unknown
    ours, theirs  statistics of the values with the larger error, if it exceeds the bound
    step    indices of all nodes of its fused step
    rows    True to check the error of each row, not only the error of all values
    """

    key: Key
    record: Record
    layer: str
    bound: float
    error: Error
    made: Error | None = None
    ours: Stats | None = None
    theirs: Stats | None = None
    step: tuple[int, ...] = ()
    rows: bool = True

    @property
    def name(self) -> str:
        return str(self.record["name"])

    @property
    def is_far(self) -> bool:
        return bool((self.made or self.error).problem)


@dataclass
class RunComparison:
    """Common and different parts of two runs.

    nodes     nodes of both runs, in execution order
    inputs    nonzero errors of graph inputs, by graph and name
    n_apart   number of our nodes without a node of the same name and shape in the other run
    known     True if `made` is available
    other_weights  True if weights, and the nodes that read them, may differ
    """

    ours: RecordedRun
    theirs: RecordedRun
    nodes: list[SharedNode] = field(default_factory=list)
    inputs: dict[tuple[int, str], Error] = field(default_factory=dict)
    n_apart: int = 0
    known: bool = False
    other_weights: bool = False

    @property
    def far_nodes(self) -> list[SharedNode]:
        """Nodes with an error (`made` if known) beyond the bound."""
        return [n for n in self.nodes if n.is_far]

    @property
    def wrong(self) -> list[SharedNode]:
        """Nodes beyond their bound that read the same weights in both runs."""
        return [n for n in self.far_nodes if not (self.other_weights and self.list_weights(n))]

    def list_weights(self, node: SharedNode) -> list[tuple[str, str, str]]:
        """Return name and both types of each weight that a node, or its fused step, reads."""
        dec, (ours, theirs) = node.key[0], self._records
        return [
            (a["name"], a["type"], b["type"])
            for i in node.step or (node.key[1],)
            for a, b in zip(ours[dec, i]["src"], theirs[dec, i]["src"], strict=False)
            if a["name"].endswith(".weight")
        ]

    @cached_property
    def _records(self) -> tuple[Mapping[Key, Record], Mapping[Key, Record]]:
        return self.ours.by_key(), self.theirs.by_key()

    @property
    def is_identical(self) -> bool:
        """True if all values are equal bit for bit."""
        return not any(n.error.nmse for n in self.nodes)

    def layers(self) -> dict[str, list[SharedNode]]:
        """Return the nodes of each layer, in execution order."""
        found: dict[str, list[SharedNode]] = {}
        for n in self.nodes:
            found.setdefault(n.layer, []).append(n)
        return found


def compare_runs(
    ours: RecordedRun, theirs: RecordedRun, bound: float | None, along: bool = False
) -> RunComparison:
    """Compare two runs of equal graphs node by node.

    bound   error bound; None: the largest error that rounding explains
    along   True if the errors of nodes include the errors of their sources
    """
    found, records, layers = RunComparison(ours, theirs), ours.by_key(), find_layers(ours.records)
    for key in sorted(ours.values.keys() & theirs.values.keys()):
        record, step = records[key], ours.steps.get(key, ())
        if along:
            limit = np.inf if is_whole(record) else ALONG
        else:
            limit = rounding(record, [records[key[0], i] for i in step])
        if bound is not None and not is_whole(record):
            limit = bound
        closely = bound is None and not along
        node = SharedNode(key, record, layers[key], limit, Error(0.0), step=step, rows=closely)
        a, b = ours.values[key](), theirs.values[key]()
        if a.shape != b.shape:
            found.n_apart += 1
            continue
        node.error = compare(node, fill_unwritten(ours, key, a, b), b)
        found.nodes.append(node)
    for at in ours.inputs.keys() & theirs.inputs.keys():
        a, b = ours.inputs[at](), theirs.inputs[at]()
        if a.shape == b.shape and (error := compare_values(b, a, 0.0, F32)).nmse:
            found.inputs[at] = error
    return found


def fill_unwritten(run: RecordedRun, key: Key, ours: Values, theirs: Values) -> Values:
    """Return our value of a node, with the other run's elements that our step did not write."""
    part = run.parts.get(key)
    return ours if part is None else np.where(part, ours, theirs)


def compare(node: SharedNode, ours: Values, theirs: Values) -> Error:
    """Return the error of a node's value; store its statistics if it is too large."""
    error = compare_values(theirs, ours, node.bound, node_type(node.record), rows=node.rows)
    if error.problem:
        node.ours, node.theirs = Stats.from_values(ours), Stats.from_values(theirs)
    return error


def by_name(ours: RecordedRun, theirs: RecordedRun, bound: float | None) -> RunComparison:
    """Compare nodes by name, in graphs that may differ.

    Parts of a prompt that were computed separately are joined.
    """
    found, records, layers = RunComparison(ours, theirs), ours.by_key(), find_layers(ours.records)
    others = dict(_nodes_by_name(theirs))
    for at, keys in _nodes_by_name(ours):
        record = records[keys[0]]
        if is_whole(record):
            continue
        values = [ours.values[k]() for k in keys]
        every = [np.ones(v.shape, bool) for v in values]
        there = [ours.parts.get(k, whole) for k, whole in zip(keys, every, strict=True)]
        pair = _join(values, [theirs.values[k]() for k in others.get(at, ())], there)
        if pair is None:
            found.n_apart += len(keys)
            continue
        limit = ALONG if bound is None else bound
        node = SharedNode(keys[0], record, layers[keys[0]], limit, Error(0.0), rows=False)
        node.error = compare(node, *pair)
        found.nodes.append(node)
    found.nodes.sort(key=lambda n: n.key)
    return found


Name = tuple[int, str, int]  # decode, name, index among nodes of that name


def _nodes_by_name(run: RecordedRun) -> Iterator[tuple[Name, list[Key]]]:
    """Yield the keys of nodes with recorded values, by decode and name."""
    found: dict[Name, list[Key]] = {}
    count: dict[tuple[int, str], int] = {}
    for r in run.records:
        dec, name = r["dec"], r["name"]
        number = count[dec, name] = count.get((dec, name), -1) + 1
        if (dec, r["i"]) in run.values:
            found.setdefault((run.calls[dec], name, number), []).append((dec, r["i"]))
    return iter(found.items())


def _join(
    a: Sequence[Values], b: Sequence[Values], there: Sequence[Mask]
) -> tuple[Values, Values] | None:
    """Join values along the single dimension that differs; return None if shapes do not match.

    there   mask of elements that `a` has; `b` provides all other elements
    """
    if len(a) == len(b) == 1 and a[0].shape == b[0].shape:
        return np.where(there[0], a[0], b[0]), b[0]
    for axis in range(4) if a and b else ():
        fits = {tuple(np.delete(x.shape, axis)) for x in (*a, *b)}
        sizes = [sum(x.shape[axis] for x in parts) for parts in (a, b)]
        if len(fits) == 1 and sizes[0] == sizes[1]:
            theirs = np.concatenate(b, axis)
            ours = np.where(np.concatenate(there, axis), np.concatenate(a, axis), theirs)
            return ours, theirs
    return None


def find_layers(records: Sequence[Record]) -> Mapping[Key, str]:
    """Return the layer of each node."""
    graphs: dict[int, list[Record]] = {}
    for r in records:
        graphs.setdefault(r["dec"], []).append(r)
    found: dict[Key, str] = {}
    for dec, nodes in graphs.items():
        graph = Graph()
        graph.nodes = [Tensor(name=r["name"]) for r in nodes]
        parts = groups(graph)
        last = max((k for k, (title, _) in enumerate(parts) if _is_layer(title)), default=-1)
        where = BEFORE
        for k, (title, members) in enumerate(parts):
            where = title if _is_layer(title) else AFTER if k > last >= 0 else where
            found.update(((dec, nodes[i]["i"]), where) for i, _ in members)
    return found


def _is_layer(title: str) -> bool:
    return title.startswith("layer ")
