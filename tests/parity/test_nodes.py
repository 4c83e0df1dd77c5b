"""Every node of every architecture, beside the real llama.cpp in the same process: equal line for
line, and equal in value.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import llama_py
from dev import tiny_models as tiny
from ggml_py.backend import HostBuffer
from ggml_py.inspection.dump import Record, diff, records
from ggml_py.opspec import OPS
from ggml_py.tensor import FLAG_COMPUTE, Tensor, strided_view
from llama_py_tools.graph.peer import Peer, Values
from llama_py_tools.measure.node_text import read_values
from tests.support.golden_models import path_of, uses
from tests.support.graph_models import LIVE, split

pytest.importorskip("llama_cpp", reason="needs llama-cpp-python: pip install '.[parity]'")
pytestmark = pytest.mark.parity

PROMPT = [int(t) for t in np.random.default_rng(1).integers(0, 64, 70)]
NEXT = [3, 5]
OPTIONS: dict[str, Any] = {"n_ctx": 256, "n_batch": 128, "n_ubatch": 128}
# NMSE of a node's values, both programs given the same sources. In llama.cpp flash attention adds
# up values in F16, a GELU is a table of F16, and a frequency factor near zero makes
# angles of many turns.
CLOSE = 1e-10
COLUMNS = 3e-7
ROUNDED = {"FLASH_ATTN_EXT": 1e-5, "GEGLU": 1e-6, "GELU": 1e-6, "ROPE": 1e-7}
# NMSE of the logits of whole runs. Nothing is rounded to F16 without flash attention and with F32
# caches, but for the GELU.
EXACT = 1e-7
EXACT_GELU = 1e-6
ROUGH = 1e-3


@dataclass
class Run:
    """What llama.cpp computed, node by node."""

    nodes: list[Record] = field(default_factory=list)
    values: list[Values | None] = field(default_factory=list)


def batches() -> Iterator[list[int]]:
    yield PROMPT
    yield from ([token] for token in NEXT)


def theirs(path: Path, flash_attn: str) -> Run:
    run = Run()

    def watch(record: Record, read: Any) -> None:
        run.nodes.append(record)
        run.values.append(read() if record["flags"] & FLAG_COMPUTE else None)

    with Peer(str(path), flash_attn=flash_attn, n_threads=1, watch=watch, **OPTIONS) as peer:
        for batch in batches():
            peer.decode(batch)
    return run


class Check:
    """Compares each of our nodes with llama.cpp's, and goes on with llama.cpp's values: what one
    node has rounded is not charged to the next."""

    def __init__(self, expected: Run) -> None:
        self.expected = expected
        self.nodes: list[Record] = []
        self.n_graphs = 0
        self.n_compared = 0
        self.first_difference = ""

    def next_graph(self, res: Any, _: Any) -> None:
        self.index = len(self.nodes)
        self.nodes += records(res.graph, self.n_graphs)
        self.n_graphs += 1
        found = diff(self.nodes[self.index :], self.expected.nodes[self.index : len(self.nodes)])
        assert found is None, str(found)

    def watch(self, t: Tensor) -> None:
        expected = self.expected.values[self.index]
        where = f"graph {self.n_graphs - 1} node {self.nodes[self.index]['i']}"
        self.index += 1
        if not t.flags & FLAG_COMPUTE or t.is_empty():
            return
        found = read_values(t)
        assert expected is not None and found is not None
        if t.op == "CLAMP":  # makes the maximum of a NaN there, a NaN here
            expected = np.where(np.isnan(found), found, expected)
        arrange = np.sort if t.op == "TOP_K" else np.asarray  # those are in any order
        error = nmse(arrange(expected), arrange(found))
        self.n_compared += 1
        if not error <= bound_of(t) and not self.first_difference:
            self.first_difference = f"{where} {t.name!r} {t.op} {t.ne}: NMSE {error:.3g}"
        if not OPS[t.op].view:
            assert isinstance(t.buffer, HostBuffer)
            strided_view(t, t.buffer.data[t.offset :])[...] = expected


def bound_of(t: Tensor) -> float:
    of_halves = t.op == "MUL_MAT" and t.source(0).type.name == "f16"
    return COLUMNS if of_halves else ROUNDED.get(t.op, CLOSE)


def nmse(expected: Values, found: Values) -> float:
    """Of what is finite; infinite if anything else is not the same."""
    finite = np.isfinite(expected)
    if not np.array_equal(expected[~finite], found[~finite], equal_nan=True):
        return np.inf
    a, b = (x[finite].astype(np.float64) for x in (expected, found))
    error = float(np.square(a - b).sum())
    return error / float(np.square(a).sum()) if error else 0.0


@pytest.fixture(params=LIVE)
def path(request: pytest.FixtureRequest) -> Path:
    return path_of(request.param)


@pytest.mark.parametrize("flash_attn", ["on", "off"])
def test_nodes_and_values(path: Path, flash_attn: str) -> None:
    expected = theirs(path, flash_attn)
    check = Check(expected)
    ctx = llama_py.load(str(path)).context(**OPTIONS, flash_attn=flash_attn, watch=check.watch)
    ctx.on_graph = check.next_graph
    for batch in batches():
        ctx.decode(batch)
    assert len(check.nodes) == len(expected.nodes)
    assert check.first_difference == ""
    assert check.n_compared > len(check.nodes) // 2


@pytest.mark.parametrize(("flash_attn", "cache"), [("on", "f16"), ("off", "f16"), ("off", "f32")])
def test_logits(path: Path, flash_attn: str, cache: str) -> None:
    gelu = uses(path.stem, "GEGLU", "GELU")
    close = ROUGH if cache == "f16" else EXACT_GELU if gelu else EXACT
    model = llama_py.load(str(path))
    ctx = model.context(**OPTIONS, flash_attn=flash_attn, type_k=cache, type_v=cache)
    alone = tiny.find(*split(path.stem)).prompt == 1  # llama.cpp gives other rows
    with Peer(str(path), flash_attn=flash_attn, cache=cache, n_threads=1, **OPTIONS) as peer:
        for batch in ([id] for id in PROMPT + NEXT) if alone else batches():
            assert nmse(peer.decode(batch), ctx.decode(batch)[0]) <= close
