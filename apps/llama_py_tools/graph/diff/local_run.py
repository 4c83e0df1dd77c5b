"""Runs of llama-py: recorded, or with another run's values instead of computed values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from ggml_py.backend import get_tensor
from ggml_py.errors import ContextError
from ggml_py.inspection.dump import Record, records
from ggml_py.plan.taps import Taps
from ggml_py.tensor import FLAG_INPUT, Tensor, numpy_dtype
from llama_py.hooks.values import get_array_shape, read, write
from llama_py_tools.graph.diff.numbers import Values
from llama_py_tools.graph.diff.run import ArrayFile, Key, RecordedRun, feed
from llama_py_tools.graph.diff.steps import Mask, StepNodes, blocks

if TYPE_CHECKING:
    from llama_py import Context
    from llama_py.batch import UBatch
    from llama_py.graph.result import GraphResult

Look = Callable[[Key, Tensor], None]
Parts = dict[int, Mask]


class WatchedRun:
    """Context that passes computed values to a callback, with fused steps.

    look   called with each stored value; later nodes read the values that it writes
    run    receives records, inputs and steps
    """

    def __init__(
        self, ctx: Context, run: RecordedRun, look: Look, store: ArrayFile | None = None
    ) -> None:
        if ctx.model.placement.shares_layers:
            raise ContextError(
                "diff cannot compare nodes that are split between devices; use -sm layer"
            )
        self.ctx, self.run, self.look, self.store = ctx, run, look, store
        self.dec, self.call = -1, 0
        self.place: dict[int, int] = {}  # index of a node, by id
        self._known: dict[int, tuple[GraphResult, list[Record], list[StepNodes], Parts]] = {}
        ctx.runner.set_taps(self._taps)
        ctx.on_graph = self._next

    def decode(self, prompt: Sequence[int], n_decode: int, chosen: Sequence[int] = ()) -> None:
        """Decode prompt and tokens; `run` then has the logits."""

        def one(ids: Sequence[int]) -> Values:
            self.call += 1
            found: Values = self.ctx.decode(ids, logits="all")
            return found

        self.call = 0 if self.ctx.model.has_encoder else -1
        feed(self.run, one, begin(self.ctx, prompt), n_decode, chosen)

    def _taps(self, res: GraphResult) -> Taps:
        nodes = res.graph.nodes
        found = blocks(res.graph, self.ctx.runner.steps(res))
        looked = ((i, b.part(res.graph, i)) for b in found for i in b.alive)
        parts = {i: part for i, part in looked if part is not None}
        self._known[id(res)] = res, records(res.graph), found, parts
        by_end = {id(nodes[b.nodes[-1]]): b for b in found}

        def tell(node: Tensor) -> None:
            block = by_end.get(id(node))
            for i in block.alive if block is not None else ():
                self.look((self.dec, i), nodes[i])

        return Taps(tell, stops=[nodes[b.nodes[-1]] for b in found])

    def _next(self, res: GraphResult, ubatch: UBatch) -> None:
        self.dec += 1
        run, (res, known, found, parts) = self.run, self._known[id(res)]
        self.place = {id(t): i for i, t in enumerate(res.graph.nodes)}
        run.records += [{**r, "dec": self.dec} for r in known]
        run.calls.append(self.call)
        run.parts.update(((self.dec, i), part) for i, part in parts.items())
        for block in found:
            if len(block.nodes) > 1:
                run.steps.update(((self.dec, i), block.nodes) for i in block.nodes)
        for t in res.graph.leafs:
            is_set = t.flags & FLAG_INPUT and t.buffer is not None
            if self.store is not None and is_set and numpy_dtype(t) is not None:
                values = get_tensor(t).astype(np.float32)
                run.inputs[self.dec, t.name] = self.store.put(values)


def begin(ctx: Context, ids: Sequence[int]) -> Sequence[int]:
    """Return the ids to decode: the prompt, or after encoding it, the start token."""
    if not ctx.model.has_encoder:
        return ids
    ctx.encode(ids)
    return [ctx.model.architecture.start_token]


def read_values(t: Tensor, ctx: Context) -> Values:
    """Return a tensor's values [ne3, ne2, ne1, ne0]."""
    if t.is_empty():
        return np.zeros(t.ne[::-1], np.float32)
    with np.errstate(all="ignore"):
        return read(t, list(ctx.devices)).astype(np.float32).reshape(t.ne[::-1])


def record(
    ctx: Context, what: str, prompt: Sequence[int], n_decode: int, chosen: Sequence[int] = ()
) -> RecordedRun:
    """Run and keep all values."""
    run, store = RecordedRun(what), ArrayFile()

    def look(key: Key, t: Tensor) -> None:
        run.values[key] = store.put(read_values(t, ctx))

    WatchedRun(ctx, run, look, store).decode(prompt, n_decode, chosen)
    return run


def put(t: Tensor, values: Values, name: str) -> None:
    """Put another run's value in a node's place, unless it has a quantized type."""
    if numpy_dtype(t) is not None and not t.is_empty():
        with np.errstate(all="ignore"):
            write(t, values.reshape(get_array_shape(t)), name)
