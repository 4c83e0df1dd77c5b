"""Which device gets which layer and weight, and what is told about it."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from ggml_py.errors import BackendError
from ggml_py.ops import get_rows, mul, mul_mat
from ggml_py.tensor import Tensor
from ggml_py.types import F32, I32
from llama_py.context import Context
from llama_py.loading.model import create_placement
from llama_py.params import ModelParams
from llama_py.weights import placement
from llama_py.weights.placement import Placement, devices_in_use, host_rules, overrides
from tests.support.devices import TestDevice
from tests.support.live_models import made, model_of

A, B, HOST = TestDevice("a"), TestDevice("b"), TestDevice("host")


def names(place: Placement, n_layer: int = 4) -> str:
    return " ".join(d.name for d in place.layers(n_layer))


@pytest.mark.parametrize(
    ("ngl", "expected"),
    [
        (0, "host host host host host"),
        (1, "host host host host a"),
        (2, "host host host a a"),
        (4, "host a a a a"),
        (5, "a a a a a"),
        (99, "a a a a a"),
        (-1, "a a a a a"),
    ],
)
def test_layers_are_offloaded_from_the_output_on(ngl: int, expected: str) -> None:
    assert names(Placement((A, HOST), ngl)) == expected


@pytest.mark.parametrize(
    ("split", "expected"),
    [((1, 1), "a a a b b"), ((3, 1), "a a a a b"), ((0, 1), "b b b b b"), ((1, 4), "a b b b b")],
)
def test_several_devices_share_layers(split: tuple[float, ...], expected: str) -> None:
    assert names(Placement((A, B, HOST), tensor_split=split)) == expected


def test_free_memory_decides_without_shares(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(A, "memory", lambda: (300, 1000), raising=False)
    monkeypatch.setattr(B, "memory", lambda: (100, 1000), raising=False)
    assert names(Placement((A, B, HOST))) == "a a a a b"


@pytest.mark.parametrize("split", [(1,), (1, 2, 3), (2, -1)])
def test_shares_that_make_no_sense(split: tuple[float, ...]) -> None:
    with pytest.raises(BackendError, match=r"2 shares, one per device \(a, b\)"):
        Placement((A, B, HOST), tensor_split=split).layers(4)


def test_one_device_has_everything() -> None:
    assert names(Placement((HOST,))) == "host host host host host"


@pytest.mark.parametrize(
    ("device", "n", "warned"),
    [
        ("null", 99, "99"),
        ("null", -2, "all"),
        ("null", -1, ""),
        ("null", 0, ""),
        (["null", "ref"], 99, ""),
    ],
)
def test_layers_without_a_device_to_offload_to(
    device: str, n: int, warned: str, caplog: pytest.LogCaptureFixture
) -> None:
    create_placement(device, ModelParams(n_gpu_layers=n))
    start = f"n_gpu_layers = {warned} has no effect: the only device is null; GPUs are opencl0"
    assert [m.startswith(start) for m in caplog.messages] == ([True] if warned else [])


def reader(op: str, t: Tensor) -> Tensor:
    """A node that reads a weight [n, m]."""
    if op == "GET_ROWS":
        return get_rows(t, Tensor(I32, (1,)))
    return (mul_mat if op == "MUL_MAT" else mul)(t, Tensor(F32, t.ne))


def home(name: str, op: str = "MUL_MAT", **options: Any) -> str:
    place = Placement((A, B, HOST), tensor_split=(1, 1), **options)
    t = Tensor(F32, (256, 8), name=name)
    return place.get_chooser(place.layers(4))(t, [reader(op, t)]).name


def test_weights_go_with_their_layer() -> None:
    assert home("token_embd.weight", "GET_ROWS") == "host"
    assert home("token_embd.weight", "MUL_MAT") == home("output.weight") == "b"
    assert home("blk.0.attn_q.weight") == "a"
    assert home("blk.3.attn_q.weight") == "b"
    assert home("rope_freqs.weight", "MUL") == "a"


def test_overrides_and_experts_on_the_host() -> None:
    devices = (A, B, HOST)
    rules = overrides({"attn_q": "B", r"blk\.0": "host"}, 1, devices)
    assert home("blk.0.attn_q.weight", overrides=rules) == "b"
    assert home("blk.0.attn_k.weight", overrides=rules) == "host"
    moe = overrides({}, 2, devices)
    for il, expected in ((0, "host"), (1, "host"), (2, "a"), (3, "b")):
        assert home(f"blk.{il}.ffn_up_exps.weight", overrides=moe) == expected
    assert home("blk.0.ffn_up_shexp.weight", overrides=moe) == "a"
    assert home("blk.0.ffn_gate_inp.weight", overrides=moe) == "a"


def test_networks_on_the_host() -> None:
    rules = tuple(host_rules(HOST, True, 2))
    for name, expected in (
        ("3.ffn_up_exps", "host"),
        ("0.ffn_up", "host"),
        ("1.ffn_down", "host"),
        ("3.ffn_up", "b"),
        ("0.ffn_norm", "a"),
    ):
        assert home(f"blk.{name}.weight", overrides=rules) == expected
    assert home("blk.3.ffn_up_exps.weight", overrides=tuple(host_rules(HOST, False, 0))) == "b"


@pytest.mark.parametrize(
    ("rules", "says"),
    [
        ({"exps": "vulkan0"}, "exps=vulkan0: expected REGEX=DEVICE with a device in use: a, host"),
        ({"(": "host"}, r"\(=host: not a regular expression"),
    ],
)
def test_wrong_overrides(rules: dict[str, str], says: str) -> None:
    with pytest.raises(BackendError, match=says):
        overrides(rules, 0, (A, HOST))


def test_a_weight_that_the_device_cannot_use_stays_on_the_host(
    caplog: pytest.LogCaptureFixture,
) -> None:
    picky = TestDevice("picky", "MUL_MAT")
    place = Placement((picky, HOST))
    choose = place.get_chooser(place.layers(1))
    t = Tensor(F32, (4, 4), name="blk.0.attn_q.weight")
    with caplog.at_level(logging.INFO, "llama_py"):
        assert choose(t, [reader("MUL_MAT", t)]) is HOST
    assert caplog.messages == [
        "blk.0.attn_q.weight is placed on host, because picky does not support it: no MUL_MAT here"
    ]
    norm = Tensor(F32, (4,), name="blk.0.attn_norm.weight")
    assert choose(norm, [reader("MUL", norm)]) is picky


def test_devices_by_name() -> None:
    assert [d.name for d in devices_in_use("ref")] == ["ref"]
    assert [d.name for d in devices_in_use(["ref", A, "cpu"])] == ["ref", "a", "cpu"]
    gpu = TestDevice("g")
    gpu.kind = "gpu"
    assert [d.name for d in devices_in_use(gpu)] == ["g", "cpu"]
    with pytest.raises(BackendError, match="must differ, got ref, ref"):
        devices_in_use(["ref", "ref"])
    with pytest.raises(BackendError, match="the list of devices is empty"):
        devices_in_use([])


def test_auto_is_what_loads_and_else_the_cpu(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    gpu = TestDevice("g")
    gpu.kind = "gpu"

    def find(backend: str) -> tuple[TestDevice, ...]:
        if backend == "broken":
            raise BackendError("backend 'broken' failed to load: no ICD")
        return (gpu,) if backend == "good" else (A,)

    monkeypatch.setattr(placement, "backend_names", lambda: ["broken", "good", "other"])
    monkeypatch.setattr(placement, "find_devices", find)
    assert [d.name for d in devices_in_use("auto")] == ["g", "cpu"]
    assert caplog.messages == ["backend 'broken' failed to load: no ICD"]
    monkeypatch.setattr(placement, "backend_names", lambda: ["other"])
    assert [d.name for d in devices_in_use(["auto"])] == ["cpu"]


def test_a_tied_head_has_bytes_of_its_own_on_another_device() -> None:
    model = model_of(*made("llama-dense"), Placement((A, HOST)))
    embeddings, head = model.architecture.token_embd, model.architecture.output.weight
    assert embeddings.buffer is not head.buffer
    assert HOST.can_read(embeddings.buffer)
    assert A.can_read(head.buffer)


def test_the_load_log(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "llama_py"):
        ctx = Context(model_of(*made("qwen2-dense"), Placement((A, HOST), 2)), n_ctx=256)
    told = "\n".join(caplog.messages)
    for line in (
        "load_tensors: offloading 1 repeating layers to GPU",
        "load_tensors: offloaded 2/3 layers to GPU",
        "            a model buffer size =",
        "llama_kv_cache:          a KV buffer size =     0.",
        " MiB (   256 cells,   2 layers,  1/1 seqs), K (f16):    0.",
        "       host compute buffer size =",
        "sched_reserve: graph nodes = ",
        "sched_reserve: graph splits = 2",
    ):
        assert line in told, line
    use = ctx.memory_breakdown()
    assert use["a"]["model"] + use["host"]["model"] == ctx.model.n_bytes
    assert use["a"]["context"] == use["host"]["context"] > 0
