"""The device itself: memory, compiling, failures in one line."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest

import ggml_opencl.backend
from ggml_opencl.table import Launch
from ggml_py import ops
from ggml_py.backend import CompileOptions, Device, KernelTime, registry, set_tensor, tensor_bytes
from ggml_py.errors import AllocError, BackendError, UnsupportedOp
from ggml_py.graph import Graph
from ggml_py.plan.sched import Scheduler
from ggml_py.tensor import FLAG_INPUT, Tensor
from ggml_py.types import F32, GGMLType
from llama_py_tools.test_backend_ops import timing
from llama_py_tools.test_backend_ops.cases import all_cases


def test_protocol_and_names(device: Any) -> None:
    assert isinstance(device, Device)
    assert device.name == "opencl0"
    assert registry.device("opencl0") is registry.device("opencl0")
    free, total = device.memory()
    assert 0 < free <= total
    assert device.wrap(np.zeros(64, np.uint8)) is None


def test_buffer(device: Any) -> None:
    buffer = device.alloc(100)
    assert device.can_read(buffer)
    assert not buffer.read(0, 100).any()
    buffer.write(10, np.arange(5, dtype=np.uint8))
    assert list(buffer.read(9, 7)) == [0, 0, 1, 2, 3, 4, 0]
    buffer.clear(7)
    assert (buffer.read(0, 100) == 7).all()
    assert device.alloc(0).read(0, 0).size == 0


def test_memory_that_is_not_there(device: Any) -> None:
    with pytest.raises(AllocError, match="buffer of"):
        device.alloc(1 << 60)


def test_plan_runs_again_with_new_inputs(device: Any) -> None:
    x = Tensor(F32, (5,), name="x")
    x.flags |= FLAG_INPUT
    graph = Graph()
    y = graph.build_forward_expand(ops.add(ops.scale(x, 2.0), x))
    plan = Scheduler([device]).plan(graph)
    for start in (0, 10):
        values = np.arange(start, start + 5, dtype=np.float32)
        set_tensor(x, values)
        plan.run()
        assert (tensor_bytes(y).view(np.float32) == 3 * values).all()


def test_unsupported_node_is_named(device: Any) -> None:
    graph = Graph()
    w = Tensor(GGMLType(99, "q9_9", 256, 100), (256, 4), name="w")
    graph.build_forward_expand(ops.mul_mat(w, Tensor(F32, (256, 1), name="x")))
    with pytest.raises(UnsupportedOp, match="opencl0: needs a source 0 of"):
        Scheduler([device]).plan(graph)


def test_kernel_that_does_not_compile(device: Any) -> None:
    broken = Launch("copy", "cpy", (), (1, 1, 1), types=("no_such_type", "f32"))
    with pytest.raises(BackendError, match=r"cannot build copy\.cl") as raised:
        device.builder.build([broken], CompileOptions())
    assert "\n" not in str(raised.value)


def test_programs_are_built_once(device: Any) -> None:
    x = Tensor(F32, (3,))
    x.buffer = device.alloc(12)
    y = ops.sqr(x)
    y.buffer = device.alloc(12)
    built: list[str] = []
    options = CompileOptions(progress=lambda done, total, what: built.append(what))
    device.compile([y], options)
    built.clear()
    device.compile([y], options)
    assert built == []


def test_without_pyopencl(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyopencl", None)
    with pytest.raises(BackendError, match="needs pyopencl: pip install"):
        ggml_opencl.backend.devices()


def test_without_a_platform(monkeypatch: pytest.MonkeyPatch) -> None:
    cl = pytest.importorskip("pyopencl")

    def none() -> list[Any]:
        raise cl.LogicError("clGetPlatformIDs failed: PLATFORM_NOT_FOUND_KHR")

    monkeypatch.setattr(cl, "get_platforms", none)
    with pytest.raises(BackendError, match=r"no OpenCL device found; .*PLATFORM_NOT_FOUND"):
        ggml_opencl.backend.devices()
    monkeypatch.setattr(cl, "get_platforms", list)
    with pytest.raises(BackendError, match="no OpenCL device found; install"):
        ggml_opencl.backend.devices()


def test_profiling(device: Any) -> None:
    """Times of every kernel, in order, only while they are asked for; the results are the same."""
    x = Tensor(F32, (5000,), name="x")
    x.flags |= FLAG_INPUT
    graph = Graph()
    y = graph.build_forward_expand(ops.add(ops.scale(x, 2.0), x))
    plan = Scheduler([device], CompileOptions(fuse=False)).plan(graph)
    set_tensor(x, np.ones(5000, np.float32))
    with device.profiling() as times:
        plan.run()
    assert [(t.node.op, t.kernel) for t in times] == [("SCALE", "op_scale"), ("ADD", "add")]
    first, second = times
    assert 0 < first.start < first.end <= second.start < second.end
    assert (tensor_bytes(y).view(np.float32) == 3).all()
    plan.run()
    assert len(times) == 2


def test_perf_counts_the_time_of_the_kernels(device: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the device's clock, here one microsecond each, not by the host's."""
    profiler = device.builder.profiler
    timed = profiler.run

    def in_a_microsecond(runs: Any) -> None:
        timed(runs)
        profiler._times[:] = [KernelTime(t.node, t.kernel, 0, 1000) for t in profiler._times]

    monkeypatch.setattr(profiler, "run", in_a_microsecond)
    monkeypatch.setattr(timing, "SECONDS", 0.0)
    (case,) = (c for c in all_cases() if str(c) == "ABS(type=f32,ne_a=[3,65,1,1],v=0)")
    assert timing.measure(case, device).time_us == pytest.approx(1)
