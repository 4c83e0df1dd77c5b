"""Planned models and contexts take what real ones do, and read nothing."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ggml_py.backend import Device, registry
from ggml_py.backend.planned import PlannedBuffer, planning_devices
from ggml_py.errors import BackendError
from ggml_py.types import BY_NAME
from llama_py.context import Context
from llama_py.fit.planning import PlannedContext, PlannedModel, gpus, open_header, stand_ins
from llama_py.loading.open import open_model
from llama_py.model import Model
from llama_py.weights.placement import devices_in_use
from tests.llama_py.test_checkpoint import byte_tokenizer, write_tiny
from tests.support import large_models
from tests.support.commands import DEMO
from tests.support.devices import TestDevice
from tests.support.live_models import info_of, made

NAMES = (
    "llama-dense",
    "qwen3moe-moe",
    "qwen35moe-moe",
    "gemma3-dense",
    "deepseek2-moe",
    "kimi-linear-moe",
    "mamba2-dense",
    "t5-dense",
)
MATRICES = re.compile(r"(ffn_(up|gate|down)(_exps)?|attn_[qkv]|output|token_embd)\.weight$")
SIZES: dict[str, Any] = {"n_ctx": 512, "n_ubatch": 64}


def file_of(name: str) -> Any:
    """A tiny model, its matrices in a type that the CPU lays out anew."""
    metadata, arrays = made(name)
    q8, f32 = BY_NAME["q8_0"], BY_NAME["f32"]
    tensors = {
        n: info_of(n, a, q8 if MATRICES.search(n) and a.shape[-1] % 32 == 0 else f32)
        for n, a in arrays.items()
    }
    return SimpleNamespace(
        path=f"{name}.gguf",
        metadata=metadata,
        architecture=metadata["general.architecture"],
        tensors=tensors,
        close=lambda: None,
    )


def both(
    name: str, devices: Sequence[Device], model: dict[str, Any] | None = None, **context: Any
) -> tuple[Context, PlannedContext]:
    """The real context, and the one that is planned."""
    how = model or {}
    real = Context(Model(file_of(name), devices, **how), **{**SIZES, **context})
    stands = planning_devices(devices)
    return real, PlannedContext(PlannedModel(file_of(name), stands, **how), **{**SIZES, **context})


@pytest.mark.parametrize("name", NAMES)
def test_the_cpu_takes_what_was_planned(name: str) -> None:
    real, plan = both(name, devices_in_use("cpu"))
    assert plan.memory_breakdown() == real.memory_breakdown()
    assert min(real.memory_breakdown()["cpu"][use] for use in ("model", "compute")) > 0


@pytest.mark.parametrize("more", [{"flash_attn": "off"}, {"n_seq_max": 3, "type_k": "q8_0"}])
def test_other_contexts(more: dict[str, Any]) -> None:
    real, plan = both("qwen35moe-moe", devices_in_use("cpu"), **more)
    assert plan.memory_breakdown() == real.memory_breakdown()


@pytest.mark.parametrize("name", NAMES[:5])
def test_devices_that_share_a_model(name: str) -> None:
    """One device has memory of its own, and cannot run an op."""
    devices: list[Device] = [TestDevice("a", "GET_ROWS"), TestDevice("b"), *devices_in_use("cpu")]
    model = {"n_gpu_layers": 2, "tensor_split": (1, 1), "n_cpu_moe": 1}
    real, plan = both(name, devices, model)
    assert plan.memory_breakdown() == real.memory_breakdown()
    assert plan.runner.sched.n_splits == real.runner.sched.n_splits > 1


def test_layouts_are_those_of_the_cpu() -> None:
    real, plan = both("qwen35moe-moe", devices_in_use("cpu"))
    there, here = ({t.name: t.layout for t in c.model._weights.all_tensors} for c in (real, plan))
    assert here == there and set(here.values()) > {""}
    plain = planning_devices(devices_in_use("cpu"))
    plain[0].repack = False
    weights = PlannedModel(file_of("qwen35moe-moe"), plain).weights
    assert not any(t.layout for t in weights)


def test_nothing_is_there() -> None:
    """Buffers count; weights have no bytes, whatever is asked of them."""
    model = PlannedModel(open_header(DEMO), stand_ins(["cpu"]))
    ctx = PlannedContext(model, n_ctx=1 << 20)
    assert ctx.memory_breakdown()["cpu"]["context"] > 2**29
    buffers = [t.buffer for t in (*model.weights, *ctx.memory.tensors())]
    assert all(isinstance(b, PlannedBuffer) for b in buffers)
    infos = model.file.tensors.values()
    assert all(t.data.strides == (0,) and t.mapped is None for t in infos)


def test_parts_of_shared_layers_are_not_copied() -> None:
    """Of a tensor that is there in name only."""
    devices = planning_devices(devices_in_use(["cpu", "cpu"]))
    model = PlannedModel(open_header(DEMO), devices, split_mode="graph", tensor_split=(1, 1))
    real = Model(DEMO, devices_in_use(["cpu", "cpu"]), split_mode="graph", tensor_split=(1, 1))
    here, there = PlannedContext(model, n_ctx=256), Context(real, n_ctx=256)
    assert here.memory_breakdown() == there.memory_breakdown()


def test_devices_that_this_machine_lacks() -> None:
    found = gpus(40)
    assert [d.name for d in found[-2:]] == ["opencl38", "opencl39"]
    assert gpus() == [d for d in found if d.description != "not on this machine"]
    first, second, host = stand_ins([*found[-2:], "cpu"], [1 << 30, 2 << 30])
    assert [d.memory()[0] for d in (first, second)] == [1 << 30, 2 << 30]
    assert host.memory()[0] > 0 and (first.largest, host.largest) == (1 << 28, None)
    mine = first.alloc(64)
    assert first.can_read(mine) and not second.can_read(mine) and not host.can_read(mine)
    assert not first.can_read(host.alloc(64)) and host.alloc(64).is_host
    with pytest.raises(BackendError, match="unknown backend 'vulkan'"):
        stand_ins(["vulkan0"])


def test_no_backend_knows_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "absent", lambda name: None)
    with pytest.raises(BackendError, match="41 GPUs requested"):
        gpus(41)


def test_a_file_larger_than_memory(tmp_path: Path) -> None:
    path = tmp_path / "large.gguf"
    size = large_models.write(path, "qwen3moe", "moe", large_models.QWEN3MOE | {"block_count": 6})
    assert size > 13e9 > 1e8 > path.stat().st_blocks * 512
    devices = stand_ins([*gpus(1), "cpu"])
    ctx = PlannedContext(PlannedModel(open_header(path), devices), n_ctx=4096)
    sizes = [ctx.memory_breakdown()[d.name]["model"] for d in ctx.devices]
    assert sum(sizes) == pytest.approx(size, rel=0.001)


def test_a_folder_is_planned(tmp_path: Path) -> None:
    """Without converting its tensors."""
    folder = write_tiny("llama", tmp_path)
    (folder / "tokenizer.json").write_text(json.dumps(byte_tokenizer()))
    with open_header(folder) as header, open_model(folder) as file:
        found, want = header.tensors, file.tensors
        assert {n: (t.type, t.ne, t.nbytes) for n, t in found.items()} == {
            n: (t.type, t.ne, t.nbytes) for n, t in want.items()
        }
        model = PlannedModel(header, stand_ins(["cpu"]))
        assert model.n_bytes == sum(t.nbytes for t in want.values())
