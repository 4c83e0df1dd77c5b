"""Values seen and changed by hooks, beside llama.cpp's evaluation callback."""

from __future__ import annotations

import ctypes
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import llama_py
from dev import tiny_models as tiny
from llama_py.models import architecture
from llama_py_tools.graph.peer import Peer
from llama_py_tools.graph.peer_nodes import GGMLTensor
from tests.support.commands import tiny_model
from tests.support.golden_models import uses
from tests.support.graph_models import LIVE, split
from tests.support.live_models import nmse, tokens

llama_cpp = pytest.importorskip(
    "llama_cpp", reason="needs llama-cpp-python: pip install '.[parity]'"
)
pytestmark = pytest.mark.parity

OPTIONS: dict[str, Any] = {"n_ctx": 256, "n_batch": 64, "n_ubatch": 64, "flash_attn": "off"}
IDS = tokens(20)
# softcap, sinks, windows, one latent head, and layers that do not attend
ATTENDING = ["llama-dense", "gemma2-dense", "gpt-oss-moe", "deepseek2-moe", "qwen35moe-moe"]


def bound(name: str, n_layer: int) -> float:
    """llama.cpp's GELU is a table of F16 values, and each layer rounds by it."""
    return 1.5e-7 * n_layer if uses(name, "GEGLU", "GELU") else 1e-8


# Results of layers have no name there, or another; or the norm behind the first takes a factor
# away.
UNNAMED = ["plamo2-dense", "qwen4exp-ngrams", "qwen4exp-chosen", "step35-joint"]
NAMED = [name for name in LIVE if name not in UNNAMED]
SCALED = [name for name in NAMED if name not in ("hrm_text-turns", "minimax-01-moe")]


def ids_of(name: str) -> list[int]:
    """No more than llama.cpp can do at once."""
    return IDS[: tiny.find(*split(name)).prompt]


def result_of(name: str) -> str:
    """What the result of a layer is called."""
    return architecture(split(name)[0]).names.get("l_out", "l_out")


@pytest.mark.parametrize("name", NAMED)
def test_values(name: str, tmp_path: Path) -> None:
    path, theirs = str(tiny_model(tmp_path, name)), dict[str, Any]()
    ctx = llama_py.load(path).context(**OPTIONS, type_k="f32", type_v="f32")
    with ctx.capture(f"{result_of(name)}-*", "*norm*", "*out*") as mine:
        ctx.decode(IDS)
    kinds = Counter[str]()

    def watch(record: Any, read: Any) -> None:
        if record["name"] in mine and (values := read()) is not None:
            theirs[record["name"]] = values

    with Peer(path, cache="f32", n_threads=1, watch=watch, **OPTIONS) as peer:
        peer.decode(IDS)
    for key, want in theirs.items():
        got = mine[key]
        if not got.size or not np.isfinite(want).all():
            continue
        assert nmse(want, got) <= 10 * bound(name, ctx.model.hparams.n_layer), key
        kinds[key.split("-")[0]] += 1
    assert len(kinds) > 1


@pytest.mark.parametrize("name", ATTENDING)
def test_weights_of_attention(name: str, tmp_path: Path) -> None:
    """Ours with flash attention, theirs without; keys are rounded to f16 in both."""
    path, theirs = str(tiny_model(tmp_path, name)), dict[str, Any]()
    ctx = llama_py.load(path).context(**{**OPTIONS, "flash_attn": "on"})
    with ctx.capture("kq_soft_max-*") as mine:
        ctx.decode(IDS)

    def watch(record: Any, read: Any) -> None:
        if record["name"] in mine:
            theirs[record["name"]] = read()

    with Peer(path, n_threads=1, watch=watch, **OPTIONS) as peer:
        peer.decode(IDS)
    assert theirs.keys() == mine.keys()
    for key, want in theirs.items():
        got, want = mine[key][..., : len(IDS)], want.reshape(-1, *want.shape[-2:])[..., : len(IDS)]
        assert nmse(want, got) < 1e-5, key


@pytest.mark.parametrize("name", SCALED)
def test_a_changed_value(name: str, tmp_path: Path) -> None:
    """The result of the first layer, doubled in both programs."""
    path, ids = str(tiny_model(tmp_path, name)), ids_of(name)
    ctx = llama_py.load(path).context(**OPTIONS, type_k="f32", type_v="f32")
    plain = ctx.decode(ids)
    ctx.clear()
    result = f"{result_of(name)}-0"
    with ctx.patch(result, lambda x, _: 2 * x):
        found = ctx.decode(ids)

    def double(address: int, ask: bool, _: Any) -> bool:
        if not ask:
            t = ctypes.cast(address, ctypes.POINTER(GGMLTensor))[0]
            if bytes(t.name) == result.encode():
                n = int(np.prod(list(t.ne)))
                np.ctypeslib.as_array((ctypes.c_float * n).from_address(t.data))[:] *= 2
        return True

    callback = llama_cpp.llama_cpp.ggml_backend_sched_eval_callback(double)
    with Peer(path, cache="f32", n_threads=1, cb_eval=callback, **OPTIONS) as peer:
        expected = peer.decode(ids)
    assert nmse(expected, found[0]) <= bound(name, ctx.model.hparams.n_layer)
    assert nmse(plain[0], found[0]) > 1e-6
