"""Control vectors beside the real llama.cpp: the same nodes, the same logits."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import llama_py
from dev import tiny_models as tiny
from ggml_py.inspection.dump import Record, diff, records
from llama_py.adapters.control_vector import load_directions
from llama_py.steering import train
from llama_py_tools.graph.peer import Peer
from tests.support.commands import tiny_model
from tests.support.golden_models import uses
from tests.support.graph_models import LIVE, split
from tests.support.live_models import nmse, tokens

pytest.importorskip("llama_cpp", reason="needs llama-cpp-python: pip install '.[parity]'")
pytestmark = pytest.mark.parity

OPTIONS: dict[str, Any] = {"n_ctx": 256, "n_batch": 64, "n_ubatch": 64, "flash_attn": "off"}


# llama.cpp leaves control vectors out of these graphs, or out of some of their layers.
UNMOVED = [
    "hy_v4-moe",
    "hy_v4-all",
    "plamo2-dense",
    "qwen4exp-ngrams",
    "qwen4exp-chosen",
    "nemotron_h-dense",
    "nemotron_h_moe-plain",
]


@pytest.mark.parametrize("name", [name for name in LIVE if name not in UNMOVED])
def test_nodes_and_logits(name: str, tmp_path: Path) -> None:
    path, nodes = str(tiny_model(tmp_path, name)), list[Record]()
    ctx = llama_py.load(path).context(**OPTIONS, type_k="f32", type_v="f32")
    n_embd = ctx.model.hparams.n_embd
    data = np.random.default_rng(3).standard_normal((1, n_embd)).astype(np.float32)
    ctx.set_control_vector(data)
    ctx.on_graph = lambda res, _: nodes.extend(records(res.graph, 0))
    ids = tokens(min(20, tiny.find(*split(name)).prompt))
    found = ctx.decode(ids)[0]
    theirs: list[Record] = []
    watch: Any = lambda record, _: theirs.append(record)  # noqa: E731
    with Peer(path, cache="f32", n_threads=1, watch=watch, **OPTIONS) as peer:
        values = data.ctypes.data_as(ctypes.POINTER(ctypes.c_float))
        assert peer.api.llama_set_adapter_cvec(peer.ctx, values, data.size, n_embd, 1, 1) == 0
        expected = peer.decode(ids)
    assert str(diff(without_data(nodes), without_data(theirs)) or "") == ""
    # llama.cpp's GELU is a table of F16 values, and each layer rounds by it
    gelu = 1.5e-7 * ctx.model.hparams.n_layer
    assert nmse(expected, found) <= (gelu if uses(name, "GEGLU", "GELU") else 1e-8)


def without_data(nodes: list[Record]) -> list[Record]:
    """The direction itself is called by its number among the leafs there."""
    for node in nodes:
        for src in node["src"]:
            if src["k"] == 1 and node["name"] in ("l_out-1", "l_last-1", "attn_norm_in-2"):
                src["name"] = ""
    return nodes


@pytest.mark.parametrize("name", ["demo", "llama-dense"])
def test_a_trained_vector_moves_both_alike(name: str, tmp_path: Path) -> None:
    """Trained here, loaded there: it moves both by the same, up to the rounding of activations for
    the demo's weights of 8 bits."""
    model = llama_py.load(None if name == "demo" else str(tiny_model(tmp_path, name)))
    path, ids = tmp_path / "vector.gguf", tokens(12)
    pairs = [(tokens(9, i), tokens(9, i + 20)) for i in range(4)]
    (6 * train(model, pairs)).save(path)
    data = load_directions([(path, 1.0)])
    ctx = model.context(**OPTIONS, type_k="f32", type_v="f32")
    plain = ctx.decode(ids)[0]
    ctx.clear()
    ctx.set_control_vector(data)
    moved = ctx.decode(ids)[0] - plain
    with Peer(str(model.file.path), cache="f32", n_threads=1, **OPTIONS) as peer:
        there = peer.decode(ids)
        peer.api.llama_memory_clear(peer.api.llama_get_memory(peer.ctx), True)
        values = data.ctypes.data_as(ctypes.POINTER(ctypes.c_float))
        n_layer, n_embd = model.hparams.n_layer, data.shape[1]
        code = peer.api.llama_set_adapter_cvec(peer.ctx, values, data.size, n_embd, 1, n_layer)
        assert code == 0
        moved_there = peer.decode(ids) - there
    assert np.abs(moved).max() > 0.5
    assert nmse(moved_there, moved) < (1e-3 if name == "demo" else 1e-8)
