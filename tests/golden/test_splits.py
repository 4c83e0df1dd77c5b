"""Tiny models on several devices: the same logits, and as many splits as ggml's rules give.

The reference device stands for a GPU: its memory is its own, so that everything is copied.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import llama_py
from ggml_py.errors import BackendError
from ggml_py.inspection.check import CheckFailed
from ggml_ref.backend import RefDevice
from tests.support.devices import TestDevice, WrongDevice
from tests.support.golden_models import path_of, prompt_of
from tests.support.live_models import nmse

N = 12  # tokens that are enough to tell


def context(name: str, device: Any, how: dict[str, Any] | None = None, **more: Any) -> Any:
    model = llama_py.load(path_of(name), device, **(how or {}))
    return model.context(**{"n_ctx": 256, "n_batch": 64, "n_ubatch": 64, **more})


def two_refs() -> list[RefDevice | str]:
    return [RefDevice("ref0"), RefDevice("ref1"), "cpu"]


def check(name: str, ctx: Any, bound: float = 1e-6) -> list[int]:
    """Logits of a prompt and of a token after it; returns the splits of both graphs."""
    tokens, expected = prompt_of(name)
    splits: list[int] = []
    ctx.on_graph = lambda *_: splits.append(ctx.runner.graphs[0][1].n_splits)
    rows = np.concatenate([ctx.decode(tokens[:N], "all"), ctx.decode(tokens[N : N + 1])])
    assert nmse(expected[: N + 1], rows) <= bound
    return splits


# Embeddings on the host, then: everything; only the head; all but the experts of each layer;
# everything on two devices.
PLACES: list[tuple[str, dict[str, Any]]] = [
    ("all", {}),
    ("head", {"n_gpu_layers": 1}),
    ("experts", {"tensor_overrides": {"exps": "cpu"}}),
    ("two", {"tensor_split": (1, 1)}),
]
MOE_LAYERS = {
    "llama-dense": 0,
    "llama-moe": 2,
    "qwen35-dense": 0,
    "qwen35moe-moe": 2,
    "qwen3next-moe": 2,
    "kimi-linear-moe": 2,
}


@pytest.mark.parametrize(("place", "how"), PLACES, ids=[place for place, _ in PLACES])
@pytest.mark.parametrize("name", MOE_LAYERS)
def test_logits_and_splits(name: str, place: str, how: dict[str, Any]) -> None:
    devices = two_refs() if place == "two" else ["ref", "cpu"]
    n = {"two": 3, "experts": 2 + 2 * MOE_LAYERS[name]}.get(place, 2)
    assert check(name, context(name, devices, how)) == [n, n]


@pytest.mark.parametrize("flash_attn", ["on", "off"])
def test_memory_on_the_host(flash_attn: str) -> None:
    """Each of the two layers goes to the host where keys and values are stored, and back."""
    ctx = context("llama-dense", ["ref", "cpu"], offload_kqv=False, flash_attn=flash_attn)
    assert check("llama-dense", ctx) == [6, 6]
    use = ctx.memory_breakdown()
    assert use["ref"]["context"] == 0 < use["cpu"]["context"]


def test_memory_is_where_its_layer_is() -> None:
    ctx = context("llama-dense", ["ref", "cpu"], {"n_gpu_layers": 2})
    assert check("llama-dense", ctx) == [2, 2]
    use = ctx.memory_breakdown()
    assert use["ref"]["context"] == use["cpu"]["context"] > 0


@pytest.mark.parametrize("op", ["FLASH_ATTN_EXT", "ROPE", "SET_ROWS", "RMS_NORM", "MUL_MAT"])
def test_a_device_that_refuses_an_op(op: str) -> None:
    """The host runs it; a cache that cannot be written is told."""
    gpu = TestDevice("gpu", op)
    if op == "SET_ROWS":
        with pytest.raises(BackendError, match=r"buffer \(gpu\) .* \(SET_ROWS\): gpu: no SET_ROWS"):
            context("llama-moe", [gpu, "cpu"])
    else:
        check("llama-moe", context("llama-moe", [gpu, "cpu"]))


def test_positions_move_on_every_device() -> None:
    found = []
    for device in ("cpu", ["ref", "cpu"], two_refs()):
        how = {"n_gpu_layers": 2} if device != "cpu" else {}
        ctx = context("llama-dense", device, how)
        ctx.decode([1, 2, 3, 4], "none")
        ctx.memory.seq_rm(0, 0, 2)
        ctx.memory.seq_add(0, 2, 4, -2)
        found.append(ctx.decode([5])[0].astype(np.float64))
    assert max(nmse(found[0], other) for other in found[1:]) <= 1e-6


@pytest.mark.parametrize("name", ["qwen35moe-moe", "kimi-linear-moe"])
def test_every_node_of_the_cpu_passes_the_check(name: str) -> None:
    ctx = context(name, "cpu", check="ref")
    check(name, ctx, 3e-6)
    assert ctx.checker.n_checked > 100
    assert ctx.checker.n_skipped == 0


def test_the_check_stops_at_a_wrong_node() -> None:
    ctx = context("llama-dense", [WrongDevice("gpu", "ROPE"), "cpu"], check="cpu")
    with pytest.raises(CheckFailed, match=r"^Qcur-0: ROPE.*: gpu differs from cpu: NMSE"):
        ctx.decode([1, 2, 3])
