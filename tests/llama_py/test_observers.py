"""What observers of a decode see, with as many tokens as people use, beside a run in which nothing
is fused and every value has memory of its own.

One ubatch of 192 tokens and rows of 512: products lie over their columns, attention over its
queries, gated units over their gates.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from ggml_py.plan.taps import Taps, keeps_sources
from ggml_py.tensor import FLAG_OUTPUT, Tensor
from llama_py.context import Context
from llama_py.graph.result import GraphResult
from llama_py.hooks import HookContext
from llama_py.hooks.values import read
from llama_py.model import Model
from llama_py.quantize.imatrix.collect import Collector
from llama_py_tools.graph.diff.local_run import record
from tests.support.live_models import made, model_of, tokens

Values = NDArray[Any]
Seen = dict[tuple[int, int], Values]  # by number of a node and of a source; -1: its own
N = 192
KEYS: dict[str, dict[str, Any]] = {
    "llama-dense": {
        "embedding_length": 512,
        "feed_forward_length": 512,
        "attention__key_length": 128,
        "attention__value_length": 128,
    },
    "qwen35moe-moe": {
        "embedding_length": 512,
        "expert_feed_forward_length": 256,
        "expert_shared_feed_forward_length": 512,
    },
}


@cache
def model(name: str) -> Model:
    return model_of(*made(name, **KEYS[name]), "cpu")


def context(name: str, **options: Any) -> Context:
    return Context(model(name), n_ctx=256, n_batch=N, n_ubatch=N, n_threads=2, **options)


class Run:
    """A decode, with what it shows by the numbers of nodes."""

    def __init__(self, name: str, **options: Any) -> None:
        self.seen: Seen = {}
        self.nodes: list[Tensor] = []
        self.ctx = context(
            name, watch=self.look_at_all if options.pop("watch", 0) else None, **options
        )
        self.ctx.on_graph = lambda res, _: setattr(self, "nodes", res.graph.nodes)

    def decode(self) -> None:
        self.ctx.decode(tokens(N), "all")

    def look(self, t: Tensor, sources: bool = True) -> None:
        i = next(i for i, node in enumerate(self.nodes) if node is t)
        self.seen[i, -1] = read(t, list(self.ctx.devices)).copy()
        for k, s in enumerate(t.src if sources and keeps_sources(t) else ()):
            if s is not None and s.layout == "" and s.root.op != "NONE":
                self.seen[i, k] = read(s, list(self.ctx.devices)).copy()

    def look_at_all(self, t: Tensor) -> None:
        if not t.is_empty():
            self.look(t)


def observe_by_taps(run: Run) -> None:
    def taps(res: GraphResult) -> Taps:
        products = [t for t in res.graph.nodes if t.op in ("MUL_MAT", "MUL_MAT_ID")]
        attention = [t for t in res.graph.nodes if t.op == "FLASH_ATTN_EXT"]
        return Taps(run.look, sources=[*products, *attention])

    with run.ctx.tap(taps):
        run.decode()


def observe_by_patches(run: Run) -> None:
    """A change may read what its node was made of."""

    def change(x: Values, at: HookContext) -> None:
        run.look(at.node)

    with run.ctx.patch("[!k]*-1", change):
        run.decode()


def observe_by_captures(run: Run) -> None:
    with run.ctx.capture("*-0", "result_output") as found:
        run.decode()
    for i, t in enumerate(run.nodes):
        last = max(k for k, other in enumerate(run.nodes) if other.name == t.name)
        if t.name in found and i == last:
            run.seen[i, -1] = found[t.name]


def observe_by_diff(run: Run) -> None:
    found = record(run.ctx, "cpu", tokens(N), 0)
    for (_, i), value in found.values.items():
        if (0, i) not in found.parts:
            run.seen[i, -1] = value()


OBSERVERS: dict[str, tuple[dict[str, Any], Callable[[Run], None]]] = {
    "taps": ({}, observe_by_taps),
    "watch": ({"watch": True}, Run.decode),
    "patch": ({}, observe_by_patches),
    "capture": ({}, observe_by_captures),
    "diff": ({}, observe_by_diff),
}


@cache
def expected(name: str) -> Seen:
    run = Run(name, fuse=False)

    def taps(res: GraphResult) -> Taps:
        return Taps(run.look, read=(all_of := computed(res)), stops=all_of)

    def computed(res: GraphResult) -> list[Tensor]:
        for t in res.graph.nodes:
            t.root.flags |= FLAG_OUTPUT
        return res.graph.compute_nodes()

    with run.ctx.tap(taps):
        run.decode()
    return run.seen


@pytest.mark.parametrize("observer", OBSERVERS)
@pytest.mark.parametrize("name", KEYS)
def test_what_is_seen(name: str, observer: str) -> None:
    options, observe = OBSERVERS[observer]
    run = Run(name, **options)
    observe(run)
    want = expected(name)
    assert len(run.seen.keys() & want.keys()) > 10
    for key in run.seen.keys() & want.keys():
        a, b = want[key].astype(np.float64).ravel(), run.seen[key].ravel()
        error = np.square(a - b).sum() / (np.square(a).sum() or 1)
        assert error < 1e-6, f"{run.nodes[key[0]]}, source {key[1]}"


@pytest.mark.parametrize("name", KEYS)
def test_an_importance_matrix_is_of_inputs(name: str) -> None:
    run, want = Run(name), expected(name)
    collector = Collector(list(run.ctx.devices), process_output=True)
    with run.ctx.tap(collector.taps):
        run.decode()
    sums: dict[str, Values] = {}
    for i, t in enumerate(run.nodes):
        weight = t.src[0].name if t.op.startswith("MUL_MAT") and t.src[0] is not None else ""
        if weight not in collector.entries:
            continue
        squares = np.square(want[i, 1], dtype=np.float64)
        if t.op == "MUL_MAT":
            sums[weight] = squares.reshape(-1, squares.shape[-1]).sum(0)
            continue
        ids = want[i, 2]
        each = squares.reshape(N, -1, n := squares.shape[-1])
        squares = np.broadcast_to(each, (*ids.shape, n))
        chosen = (ids == e for e in range(t.source(0).ne[2]))
        sums[weight] = np.concatenate([squares[here].sum(0) for here in chosen])
    assert sums.keys() == collector.entries.keys()
    for weight, right in sums.items():
        found = collector.entries[weight].sums
        np.testing.assert_allclose(found, right, 1e-3, 1e-3, err_msg=weight)
