"""OpenCL devices that share layers, one opened twice: what passes between them goes through the
host."""

from __future__ import annotations

from typing import Any

import pytest

from ggml_py.backend.registry import device as find_device
from llama_py.context import Context
from llama_py.model import Model
from llama_py.weights.placement import Placement
from tests.ggml_opencl.conftest import WAYS
from tests.support.live_models import made, model_of, nmse
from tests.support.split_models import EXACT, KEYS, run, whole

CLOSE, CLOSE_F16 = 1e-10, 1e-5


def shared(name: str, two: tuple[Any, Any], mode: str = "graph") -> Model:
    place = Placement((*two, find_device("cpu")), tensor_split=(1, 2), split_mode=mode)
    return model_of(*made(name, **KEYS[name]), place)


NAMES = [
    "llama-dense",
    "qwen35moe-moe",
    "mamba2-dense",
    "mamba-dense",
    "kimi-linear-moe",
    "deepseek2-moe",
    "rwkv6-fused",
]


@pytest.mark.parametrize(
    ("two", "name"),
    [*((WAYS[0], name) for name in NAMES), *((WAYS[1], name) for name in NAMES[:2])],
    indirect=["two"],
)
def test_two_devices_share_every_layer(name: str, two: tuple[Any, Any]) -> None:
    model = shared(name, two)
    ctx = Context(model, **EXACT)
    assert [d.name for d in ctx.devices] == [*(d.name for d in two), "cpu"]
    sizes = ctx.memory_breakdown()
    assert all(sizes[d.name]["model"] and sizes[d.name]["context"] for d in two)
    assert nmse(run(whole(name)), run(model)) <= CLOSE
    assert nmse(run(whole(name)), run(model, reduce_type="f16")) <= CLOSE_F16


@pytest.mark.parametrize("two", WAYS[:1], indirect=True)
@pytest.mark.parametrize("flash_attn", ["on", "off"])
@pytest.mark.parametrize("name", ["qwen35moe-moe", "deepseek2-moe"])
def test_keys_may_be_on_the_host(name: str, flash_attn: str, two: tuple[Any, Any]) -> None:
    options = {"offload_kqv": False, "flash_attn": flash_attn}
    model = shared(name, two)
    caches = Context(model, **{**EXACT, **options}).memory.caches.values()
    assert [[*kv.memory_breakdown()] for kv in caches] == [["cpu"]]
    expected = run(whole(name), flash_attn=flash_attn)
    assert nmse(expected, run(model, **options)) <= (CLOSE if flash_attn == "off" else 1e-6)


def test_a_gpu_and_the_cpu_share_layers(device: Any) -> None:
    """The host takes part where it has a share."""
    place = Placement((device, find_device("cpu")), tensor_split=(1, 1), split_mode="graph")
    model = model_of(*made("qwen3moe-moe", **KEYS["qwen3moe-moe"]), place)
    assert Context(model, **EXACT).memory.memory_breakdown().keys() == {device.name, "cpu"}
    assert nmse(run(whole("qwen3moe-moe")), run(model)) <= CLOSE


def test_two_devices_share_rows(two: tuple[Any, Any]) -> None:
    assert nmse(run(whole("llama-dense")), run(shared("llama-dense", two, "row"))) <= CLOSE
