"""Stages of layers, in each of which several devices share all of them."""

from __future__ import annotations

from typing import Any

import pytest

import llama_py
from ggml_py.errors import BackendError
from llama_py.context import Context
from llama_py.loading.split.block import SplitBlock
from llama_py.weights.parallel import Parallel
from llama_py.weights.placement import Placement, arrange_devices, coarse, devices_in_use
from tests.support.commands import DEMO
from tests.support.commands import run as command
from tests.support.devices import TestDevice
from tests.support.live_models import made, model_of, nmse
from tests.support.split_models import EXACT, IDS, KEYS, run, whole

CLOSE = 1e-10
NAMES = ("llama-dense", "olmo2-dense", "qwen35moe-moe", "kimi-linear-moe", "rwkv6-fused")


def staged(name: str, how: str, apart: bool = False) -> Any:
    """A tiny model on CPUs, or on devices that cannot read each other's memory; later stages have
    more, so that none has the output alone."""
    p = Parallel.parse(how)
    on: list[Any] = [TestDevice(f"d{i}") for i in range(p.n)] if apart else ["cpu"] * p.n
    shares = [3.0**stage for stage in range(p.pp) for _ in range(p.size)]
    mode = "graph" if p.size > 1 else "layer"
    devices, order = arrange_devices(devices_in_use(on), mode, 0, shares)
    place = Placement(devices, tensor_split=order, split_mode=mode, parallel=p)
    return model_of(*made(name, **KEYS.get(name, {})), place)


def inner(ctx: Context) -> list[tuple[str, str]]:
    """(name, device) of what one stage copies from another, in the latest graph."""
    plan = ctx.runner.graphs[0][1]
    groups = [[d.name for d in group] for group in ctx.model.placement.groups]
    stage = {name: i for i, group in enumerate(groups) for name in group}
    made_on = {id(t): s.device.name for s in plan.splits for t in s.nodes}
    return [
        (source.name, s.device.name)
        for s in plan.splits
        for source, _ in s.inputs
        if id(source) in made_on and stage[made_on[id(source)]] != stage[s.device.name]
    ]


@pytest.mark.parametrize("name", NAMES)
def test_stages_share_their_layers(name: str) -> None:
    model = staged(name, "tp=2,pp=2")
    assert nmse(run(whole(name)), run(model)) <= CLOSE
    layers: list[Any] = model.architecture.layers
    for layer in layers:
        parts = [getattr(layer, name) for name in type(layer).__slots__]
        assert sum(isinstance(x, SplitBlock) for x in parts) >= 1
    ctx = Context(model, **EXACT)
    ctx.decode(IDS[:5])
    sizes = ctx.memory_breakdown()
    assert all(size["model"] and size["context"] and size["compute"] for size in sizes.values())


@pytest.mark.parametrize("name", ["llama-dense", "olmo2-dense"])
def test_a_layer_s_result_is_all_that_passes_between_stages(name: str) -> None:
    ctx = Context(staged(name, "tp=2,pp=2", apart=True), **EXACT)
    ctx.decode(IDS[:5])
    passed = [(node, device) for node, device in inner(ctx) if node != "embd"]  # of the host
    assert {node.partition("-")[0] for node, _ in passed} == {"l_out"}
    assert sorted(device for _, device in passed) == ["d2", "d3"]


def test_stages_of_one_device_are_whole_layers() -> None:
    model = staged("llama-dense", "pp=2")
    assert (run(whole("llama-dense")) == run(model)).all()
    assert [*model.sizes.values()].count(0) == 0 and len(model.sizes) == 2
    assert not any(isinstance(x, SplitBlock) for x in model.architecture.layers)


@pytest.mark.parametrize("how", ["ep=2", "tp=3,ep=3", "tp=2,pp=2,ep=2"])
@pytest.mark.parametrize("name", ["qwen35moe-moe", "kimi-linear-moe", "llama4-moe"])
def test_experts_are_whole_and_on_one_device_each(name: str, how: str) -> None:
    model = staged(name, how)
    assert nmse(run(whole(name)), run(model)) <= CLOSE
    info = next(t for t in model.file.tensors.values() if "ffn_down_exps.weight" in t.name)
    parts = [t for t in model._weights.all_tensors if t.name.startswith(f"{info.name}.")]
    assert len(parts) == Parallel.parse(how).size
    assert sum(t.ne[2] for t in parts) == info.ne[2]
    assert {t.ne[:2] for t in parts} == {info.ne[:2]}


def sums(ctx: Context) -> int:
    """How often devices bring their parts together for one token."""
    ctx.decode(IDS[:1])
    return sum(t.op == "REDUCE" for t in ctx.runner.graphs[0][0].graph.nodes)


@pytest.mark.parametrize(
    ("name", "how", "expected"),
    [
        ("llama-dense", "tp=2", 2),
        ("qwen35-dense", "tp=2", 2),
        ("qwen35moe-moe", "tp=2", 2),
        ("qwen35moe-moe", "tp=2,ep=2", 2),
        ("qwen35moe-moe", "ep=2", 1),
        ("kimi-linear-moe", "tp=2,pp=2", 2),
        ("olmo2-dense", "tp=2", 3),  # norms over all heads need the mean of their squares
    ],
)
def test_a_block_has_one_sum(name: str, how: str, expected: int) -> None:
    """In a layer: attention, a delta net, a feed-forward network, experts have one each; a block
    that is whole has none."""
    model = staged(name, how)
    assert sums(Context(model, **EXACT)) == expected * len(model.architecture.layers)


def test_what_is_not_divisible_is_told() -> None:
    with pytest.raises(BackendError, match=r"2 stages of 2 devices need 4 devices, got 3: cpu, "):
        llama_py.load(DEMO, device=["cpu"] * 3, parallel="tp=2,pp=2")
    for wrong in ("tp=0", "tp", "x=2", {"tp": "2"}):
        with pytest.raises(BackendError, match="parallel must be tp=N, pp=N, ep=N"):
            llama_py.load(DEMO, parallel=wrong)
    with pytest.raises(BackendError, match="tp=2 and ep=4"):
        Parallel.parse("tp=2,ep=4")


def test_more_stages_than_layers_are_refused() -> None:
    with pytest.raises(
        BackendError,
        match=r"pp must be at most 3 stages \(the model has 2 layers and the output\), got 4",
    ):
        staged("llama-dense", "pp=4")


def test_stages_without_a_layer_are_told(caplog: pytest.LogCaptureFixture) -> None:
    devices = devices_in_use([TestDevice(f"d{i}") for i in range(3)])
    place = Placement(devices, tensor_split=(1, 0.01, 1), parallel=Parallel(pp=3))
    model_of(*made("llama-dense"), place)
    assert [r.getMessage() for r in caplog.records if "pp=" in r.getMessage()] == [
        "pp=3: no layers for d1; use fewer stages"
    ]


def test_devices_without_a_head_are_told(caplog: pytest.LogCaptureFixture) -> None:
    """Of four heads for keys; the hidden channels are enough for all."""
    staged("llama-dense", "tp=2")
    assert "no part for" not in caplog.text
    model = staged("llama-dense", "tp=5")
    n = len(model.architecture.layers)
    assert [r.getMessage() for r in caplog.records if "no part for" in r.getMessage()] == [
        f"5 devices share layers, but {n} of {2 * n} blocks have no part for cpu.5, because they"
        " have fewer heads, experts or FFN blocks than devices; use fewer devices"
    ]
    assert nmse(run(whole("llama-dense")), run(model)) <= CLOSE


def test_commands_take_it() -> None:
    text = ("-p", "ROMEO:", "-n", "12", "--temp", "0", "-no-cnv")
    alone = command("llama-py-cli", *text)
    four = command(
        "llama-py-cli", *text, "-dev", "cpu,cpu,cpu,cpu", "--parallel", "tp=2,pp=2", "-t", "4"
    )
    assert four.returncode == 0, four.stderr
    assert four.stdout == alone.stdout


def test_shares_are_the_same_whatever_little_differs() -> None:
    assert coarse([1000, 990, 1000]) == coarse([970, 1000, 985]) == [16, 16, 16]
    assert coarse([1000, 260, 10]) == [16, 4, 16 * 10 / 1000]
