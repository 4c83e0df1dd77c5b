"""Tiny models on OpenCL devices: the real llama.cpp's logits, however the graph is split."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import llama_py
from dev import tiny_models as tiny
from ggml_py.backend.registry import device as find_device
from ggml_py.tensor import FLAG_WEIGHT, Tensor
from llama_py.context import Context
from llama_py.weights.placement import Placement
from tests.ggml_opencl.conftest import WAYS
from tests.support.golden_models import compare, gold, path_of, prompt_of, runs_of
from tests.support.graph_models import CONTINUING, split, stands_for_others
from tests.support.live_models import nmse
from tests.support.splits import count_splits

SOME = ["llama-dense", "qwen35moe-moe", "kimi-linear-moe"]
SIZES = {"n_ctx": 256, "n_batch": 64, "n_ubatch": 64}
BOUND = 1e-5
FOUND = {name: tiny.find(*split(name)) for name in CONTINUING}
FROM_ZERO = [name for name, found in FOUND.items() if not (found.first or found.unrecorded)]
OTHERS = [
    (name, run)
    for name, run in runs_of("", nodes=False)
    if name not in FROM_ZERO and stands_for_others(*split(name))
]


def alone(path: Path, device: Any, **more: Any) -> Context:
    """On nothing but this device: a node that it refuses raises."""
    model = llama_py.Model(path, Placement((device,)))
    return model.context(**{**SIZES, **more})


def context(name: str, devices: Any, how: dict[str, Any], **more: Any) -> Context:
    model = llama_py.load(path_of(name), devices, **how)
    return model.context(**{**SIZES, **more})


def check(name: str, ctx: Context, n_steps: int | None = None) -> list[int]:
    """Logits of the prompt and of greedy steps after it; returns the number of splits of each kind
    of graph, which is also that of an independent count.
    """
    ids, expected = prompt_of(name)
    recorded = gold(name, "logits")
    splits: dict[int, int] = {}

    def count(res: Any, ubatch: Any) -> None:
        n = ctx.runner.graphs[0][1].n_splits
        assert n == count_splits(res.graph, ctx.devices)
        splits[ubatch.n_tokens] = n

    ctx.on_graph = count
    logits = ctx.decode(ids, logits="all")
    assert nmse(expected, logits) <= BOUND
    last = logits[-1]
    for token, row in list(zip(recorded["tokens"], recorded["steps"], strict=True))[:n_steps]:
        assert int(last.argmax()) == token
        last = ctx.decode([int(token)])[0]
        assert nmse(row.astype(np.float64), last) <= BOUND
    return sorted(set(splits.values()))


@pytest.mark.parametrize("name", FROM_ZERO)
def test_alone(name: str, device: Any) -> None:
    """A graph for one token is built for the first step, and used again for those after it."""
    n_steps = 3 if FOUND[name].prompt > 1 else None  # else all that is read are the steps
    assert check(name, alone(path_of(name), device), n_steps) == [1]


@pytest.mark.parametrize(("name", "run"), OTHERS)
def test_texts_that_are_read_otherwise(name: str, run: str, device: Any) -> None:
    """As a whole, or far from the first position."""
    compare(name, run, Placement((device,)), BOUND)


# By hand, after ggml's passes. The host has the embeddings and runs GET_ROWS: one split. What
# follows is bound to one device or lies between its nodes: a second one. Experts on the host take
# gate, up and down, with what lies between these, out of each such layer: two more a layer.
PLACES: dict[str, tuple[dict[str, Any], int, int]] = {
    "all": ({"n_gpu_layers": 99}, 2, 0),
    "head": ({"n_gpu_layers": 1}, 2, 0),
    "experts": ({"tensor_overrides": {"exps": "cpu"}}, 2, 2),
}
MOE_LAYERS = {
    "llama-dense": 0,
    "llama-moe": 2,
    "qwen35-dense": 0,
    "qwen35moe-moe": 2,
    "qwen35moe-mtp": 2,
    "qwen3next-moe": 2,
    "kimi-linear-moe": 2,
}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("name", MOE_LAYERS)
def test_split_with_the_cpu(name: str, place: str, device: Any) -> None:
    how, n, more = PLACES[place]
    ctx = context(name, [device, "cpu"], how)
    assert check(name, ctx, n_steps=2) == [n + more * MOE_LAYERS[name]]


@pytest.mark.parametrize("name", [name for name, n in MOE_LAYERS.items() if n])
def test_a_gpu_has_weights_copied_for_large_batches(
    name: str, again: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(again, "kind", "gpu")
    ids, expected = prompt_of(name)
    for place, (how, _, _) in PLACES.items():
        ctx = context(name, [again, "cpu"], how)
        copied: list[Tensor] = []

        def look(_: Any, __: Any, ctx: Context = ctx, copied: list[Tensor] = copied) -> None:
            inputs = (t for split in ctx.runner.graphs[0][1].splits for t, _ in split.inputs)
            copied += (t for t in inputs if t.flags & FLAG_WEIGHT)

        ctx.on_graph = look
        assert nmse(expected, ctx.decode(ids, logits="all")) <= BOUND
        assert bool(copied) == (place != "all")
        row = gold(name, "logits")["steps"][0].astype(np.float64)
        assert nmse(row, ctx.decode([int(gold(name, "logits")["tokens"][0])])[0]) <= BOUND


# Of qwen35moe-mtp, one device would have only the layer that drafts.
@pytest.mark.parametrize(
    ("two", "name"),
    [(WAYS[0], name) for name in MOE_LAYERS if name != "qwen35moe-mtp"]
    + [(WAYS[1], name) for name in SOME],
    indirect=["two"],
)
def test_two_devices(name: str, two: tuple[Any, Any]) -> None:
    """Ubatches follow one another through both; each begins on the host: three splits."""
    ctx = context(name, [*two, "cpu"], {"tensor_split": (1, 2)}, n_ubatch=16)
    assert ctx.runner.sched.n_copies == 4
    assert check(name, ctx, n_steps=2) == [3]
    use = ctx.memory_breakdown()
    assert all(use[d.name]["model"] and use[d.name]["context"] for d in two)


@pytest.mark.parametrize("name", SOME)
def test_other_ways_give_the_same(name: str, device: Any) -> None:
    """Small micro-batches, attention with a score matrix, memory on the host."""
    ways: list[dict[str, Any]] = [{"n_ubatch": 7}, {"flash_attn": False}, {"offload_kqv": False}]
    ids, expected = prompt_of(name)
    for way in ways:
        logits = context(name, [device, "cpu"], {}, **way).decode(ids, logits="all")
        assert nmse(expected, logits) <= BOUND


@pytest.mark.parametrize("types", [("q8_0", "q8_0"), ("q4_0", "q4_0"), ("q5_1", "iq4_nl")])
def test_a_quantized_cache(types: tuple[str, str], device: Any) -> None:
    """As the reference with the same cache."""
    k, v = types
    found = []
    for where in (device, find_device("ref")):
        ctx = alone(path_of("llama-dense"), where, type_k=k, type_v=v)
        first = ctx.decode([1, 2, 3, 4, 5, 6], logits="all")
        found.append(np.concatenate([first, ctx.decode([7])]).astype(np.float64))
    assert nmse(found[1], found[0]) <= 1e-5


def test_the_load_log(device: Any, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "llama_py"):
        context("llama-dense", [device, device, "cpu"], {"tensor_split": (1, 2)})
    told = "\n".join(caplog.messages)
    for line in (
        "load_tensors: offloaded 3/3 layers to GPU",
        "load_tensors:      opencl0 model buffer size =",
        "load_tensors:    opencl0.2 model buffer size =",
        "llama_kv_cache:  opencl0.2 KV buffer size =     0.06 MiB",
        " opencl0.2 compute buffer size =",
        "sched_reserve: graph splits = 3",
        ", sched copies = 4",
    ):
        assert line in told, line
