"""Unembedding: computes logits from the residual stream with the model's own nodes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ggml_py.backend import Device, get_tensor, set_tensor
from ggml_py.errors import ContextError
from ggml_py.graph import Graph
from ggml_py.plan import Plan
from ggml_py.plan.sched import Scheduler
from ggml_py.tensor import FLAG_INPUT, Tensor, contiguous_strides
from llama_py.batch import F32, UBatch
from llama_py.graph.inputs.tokens import InputOutIds
from llama_py.graph.result import GraphResult
from llama_py.hooks.names import Names
from llama_py.hooks.points import resid_pre

N_ROWS = 64  # maximum rows per graph


class Unembedding:
    """Final norm and head: a graph's nodes after its last layer, including softcaps, factors,
    biases, and tied or quantized weights.
    """

    def __init__(self, graph_of: Callable[[int], GraphResult], devices: Sequence[Device]) -> None:
        """Store the devices; graph_of: builds the graph of n tokens that are all outputs."""
        self._graph_of, self._devices = graph_of, list(devices)

    def __call__(self, x: npt.ArrayLike) -> F32:
        """Compute logits [n, n_vocab] from rows of the residual stream [n, n_embd].

        Raises ContextError for rows of another length, and if the model has no LM head, or the
        head reads more than the last layer's result.
        """
        rows = np.ascontiguousarray(x, np.float32)
        if rows.ndim != 2 or not len(rows):
            raise ContextError(
                f"rows of the residual stream must have shape [n, n_embd], got {rows.shape}"
            )
        parts = [rows[i : i + N_ROWS] for i in range(0, len(rows), N_ROWS)]
        found, planned = list[F32](), dict[int, tuple[Tail, Plan]]()
        for part in parts:
            if len(part) not in planned:  # not cached: adapters may be set before the next call
                planned = {len(part): self._plan(len(part))}
            found.append(_run(*planned[len(part)], part))
        return np.concatenate(found)

    def _plan(self, n: int) -> tuple[Tail, Plan]:
        found = tail(self._graph_of(n))
        return found, Scheduler(self._devices).plan(found.graph)


def _run(tail: Tail, plan: Plan, rows: F32) -> F32:
    if rows.shape[1] != tail.end.ne[0]:
        raise ContextError(f"rows must have {tail.end.ne[0]} elements, got {rows.shape[1]}")
    set_tensor(tail.end, rows)
    for select in tail.selecting:
        select.set_input(tail.ubatch)
    plan.run()
    logits: F32 = get_tensor(tail.logits).reshape(len(rows), -1).copy()
    return logits


@dataclass(frozen=True, slots=True)
class Tail:
    """Nodes of a graph after its last layer.

    end     [n_embd, n] that layer's result, an input here
    logits  [n_vocab, n]
    selecting  inputs that select output rows: all rows
    """

    end: Tensor
    logits: Tensor
    graph: Graph
    selecting: list[InputOutIds]
    ubatch: UBatch


def tail(res: GraphResult) -> Tail:
    """Return the tail of a graph, which is modified; ContextError if it needs more than one row per
    token."""
    names, logits = Names(res), res.t_logits
    end = resid_pre(names, names.n_layers)
    if logits is None or end is None:
        raise ContextError(
            "this model has no LM head that computes logits from its last layer's result"
        )
    end.op, end.src, end.params, end.flags = "NONE", (), (), FLAG_INPUT
    end.view_src, end.view_offs, end.nb = None, 0, contiguous_strides(end.type, end.ne)
    graph = Graph()
    graph.build_forward_expand(logits)
    leafs = {id(t) for t in graph.leafs}
    inputs = [i for i in res.inputs if isinstance(i, InputOutIds) and id(i.out_ids) in leafs]
    known = {id(end), *(id(i.out_ids) for i in inputs)}
    others = [t.name for t in graph.leafs if t.buffer is None and id(t) not in known]
    if others or id(end) not in leafs or end.n_rows != logits.n_rows:
        also = f": {', '.join(others)}" if others else f": {end} for {logits}"
        raise ContextError(
            f"the LM head of this model needs more inputs than one row of its last layer{also}"
        )
    return Tail(end, logits, graph, inputs, res.params.ubatch)
