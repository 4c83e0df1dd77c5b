"""Values of a graph that are in memory after each step; fused steps keep only some."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.lib.stride_tricks import as_strided
from numpy.typing import NDArray

from ggml_py.backend import Work
from ggml_py.fusion import FusedNodes
from ggml_py.graph import Graph
from ggml_py.opspec import OPS
from ggml_py.tensor import FLAG_OUTPUT, Tensor, numpy_dtype

Mask = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class StepNodes:
    """Consecutive nodes, by index, that run as one step, or as several that are interleaved.

    alive   nodes whose values are still stored after the last node
    """

    nodes: tuple[int, ...]
    alive: tuple[int, ...]

    def part(self, graph: Graph, i: int) -> Mask | None:
        """Return a mask [ne3, ne2, ne1, ne0] of the elements that later nodes read; None: all."""
        t, read = graph.nodes[i], list[Tensor]()
        if len(self.nodes) == 1 or t.view_src is not None or numpy_dtype(t) is None:
            return None
        for node in graph.nodes[self.nodes[-1] + 1 :]:
            if not OPS[node.op].view:
                read += [s for s in node.src if s is not None and s.root is t]
            elif node.flags & FLAG_OUTPUT and node.root is t:
                read.append(node)
        if t.flags & FLAG_OUTPUT or not t.is_contiguous() or any(s is t for s in read):
            return None
        mask, size = np.zeros(t.n_elements, bool), t.type.type_size
        for s in read:
            strides = [nb // size for nb in s.nb[::-1]]
            as_strided(mask[s.view_offs // size :], s.ne[::-1], strides)[...] = True
        return None if mask.all() else mask.reshape(t.ne[::-1])


def blocks(graph: Graph, steps: Sequence[Work]) -> list[StepNodes]:
    """Return all computed nodes as steps, in order."""
    place = {id(t): i for i, t in enumerate(graph.nodes)}
    spans = sorted(sorted(place[id(t)] for t in step_nodes(step)) for step in steps)
    merged: list[list[int]] = []
    for span in spans:
        if merged and span[0] < max(merged[-1]):
            merged[-1] += span
        else:
            merged.append(list(span))
    inside = {place[id(t)] for s in steps if isinstance(s, FusedNodes) for t in s.match.inside}
    last = _last_reads(graph)
    return [_block(graph, sorted(nodes), inside, last) for nodes in merged]


def step_nodes(step: Work) -> list[Tensor]:
    return list(step.match.nodes) if isinstance(step, FusedNodes) else [step]


def _last_reads(graph: Graph) -> dict[int, int]:
    """Return, by root, the last node that reads any of its bytes."""
    found: dict[int, int] = {}
    for i, t in enumerate(graph.nodes):
        for s in t.src:
            if s is not None:
                found[id(s.root)] = i
    return found


def _block(graph: Graph, nodes: list[int], inside: set[int], last: dict[int, int]) -> StepNodes:
    end, alive = nodes[-1], []
    for i in nodes:
        t = graph.nodes[i]
        over = any(graph.nodes[k].root is t.root for k in nodes if k > i)
        outlives = last.get(id(t.root), -1) > end or t.root.buffer is not None
        wanted = (t.flags | t.root.flags) & FLAG_OUTPUT
        if i == end or (i not in inside and not over and (outlives or wanted)):
            alive.append(i)
    return StepNodes(tuple(nodes), tuple(alive))
