"""What is planned for OpenCL devices is what they then are asked for, buffer by buffer."""

from __future__ import annotations

import weakref
from typing import Any

import pytest

from ggml_opencl.buffers import OpenCLBuffer
from ggml_py.backend.planned import planning_devices
from ggml_py.backend.registry import device as find_device
from llama_py.context import Context
from llama_py.fit.planning import PlannedContext, PlannedModel
from llama_py.model import Model
from tests.llama_py.test_planning import SIZES, file_of

LITTLE = 4096  # of a device: what the scheduler asks others about, and where faults are noted


@pytest.mark.parametrize(
    ("name", "model"),
    [
        ("llama-dense", {"n_gpu_layers": 2}),
        ("qwen35moe-moe", {}),
        ("kimi-linear-moe", {}),
        ("deepseek2-moe", {"n_gpu_layers": 2, "cpu_moe": True}),
    ],
)
def test_bytes(
    name: str, model: dict[str, Any], two: tuple[Any, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    devices, buffers = (*two, find_device("cpu")), list[weakref.ref[OpenCLBuffer]]()
    how = {"tensor_split": (1, 1), **model}
    plan = PlannedContext(PlannedModel(file_of(name), planning_devices(devices), **how), **SIZES)

    def noted(self: OpenCLBuffer, queue: Any, size: int, faults: Any) -> None:
        made(self, queue, size, faults)
        buffers.append(weakref.ref(self))

    made = OpenCLBuffer.__init__
    monkeypatch.setattr(OpenCLBuffer, "__init__", noted)
    ctx = Context(Model(file_of(name), devices, **how), **SIZES)
    assert plan.memory_breakdown() == ctx.memory_breakdown()
    assert plan.runner.sched.n_splits == ctx.runner.sched.n_splits
    there = [b for ref in buffers if (b := ref()) is not None]
    for d in two:
        asked = sum(b.size for b in there if b.queue is d.queue)
        predicted = sum(plan.memory_breakdown()[d.name].values())
        assert predicted <= asked <= predicted + LITTLE


def test_a_driver_limits_buffers(device: Any) -> None:
    (stand_in,) = planning_devices([device])
    most = device.queue.device.max_mem_alloc_size
    assert stand_in.largest == device.max_buffer_size() == most
    stand_in.limit(device.memory()[1] // 2)
    assert stand_in.largest >= device.memory()[1] // 8
