"""What goes wrong with a device: one line and exit 1 if it was asked for, else the CPU does it."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest

import ggml_opencl.backend
from ggml_py.backend import registry
from ggml_py.errors import BackendError
from llama_py.weights import placement
from llama_py_tools.generate import cli
from tests.support.alone import holds_in_fork, run_alone
from tests.support.installed import devices_or_skip

GENERATE = ["-p", "ROMEO:", "-n", "2", "--temp", "0", "-c", "256"]


@pytest.fixture(autouse=True)
def as_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """`auto` takes the device; what a test breaks is not kept for others."""
    monkeypatch.delitem(registry.opened, "opencl", raising=False)
    found = devices_or_skip("opencl")
    monkeypatch.setattr(found[0], "kind", "gpu")
    monkeypatch.setattr(placement, "backend_names", lambda: ["opencl"])


def no_platform(monkeypatch: pytest.MonkeyPatch) -> str:
    import pyopencl as cl

    def none() -> list[Any]:
        raise cl.LogicError("clGetPlatformIDs failed: PLATFORM_NOT_FOUND_KHR")

    monkeypatch.delitem(registry.opened, "opencl")
    monkeypatch.setattr(cl, "get_platforms", none)
    return "no OpenCL device found; install the driver of your GPU"


def broken_kernel(monkeypatch: pytest.MonkeyPatch) -> str:
    sources = ggml_opencl.program.source

    def source(family: str, types: tuple[str, ...], macros: str) -> str:
        wrong = "no such thing;" if family == "matrix/columns" else ""
        return sources(family, types, macros) + wrong

    monkeypatch.setattr(ggml_opencl.program, "source", source)
    return "cannot build matrix/columns.cl"


def full_while_uploading(monkeypatch: pytest.MonkeyPatch) -> str:
    return full_after(monkeypatch, 3)


def full_later(monkeypatch: pytest.MonkeyPatch) -> str:
    """The weights fit, the context does not."""
    return full_after(monkeypatch, 40)


def full_after(monkeypatch: pytest.MonkeyPatch, n: int) -> str:
    import pyopencl as cl

    made, buffer = [0], cl.Buffer

    def allocate(*args: Any, **more: Any) -> Any:
        made[0] += 1
        if made[0] > n:
            raise cl.MemoryError("create_buffer failed: MEM_OBJECT_ALLOCATION_FAILURE")
        return buffer(*args, **more)

    monkeypatch.setattr(cl, "Buffer", allocate)
    return "has no memory for"


def upload_fails(monkeypatch: pytest.MonkeyPatch) -> str:
    import pyopencl as cl

    def refuse(*_: Any, **__: Any) -> None:
        raise cl.RuntimeError("enqueue_copy failed: OUT_OF_RESOURCES")

    monkeypatch.setattr(cl, "enqueue_copy", refuse)
    return "cannot receive"


FAULTS = [no_platform, broken_kernel, full_while_uploading, full_later, upload_fails]


@pytest.mark.parametrize("fault", FAULTS)
def test_a_device_asked_for_by_name(
    fault: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    reason = fault(monkeypatch)
    assert cli.main(["-dev", "opencl", *GENERATE]) == 1
    shown = capsys.readouterr()
    errors = [line for line in shown.err.splitlines() if line.startswith("error: ")]
    assert len(errors) == 1
    assert reason in errors[0]
    assert shown.out == ""
    assert "Traceback" not in shown.err


@pytest.mark.parametrize("fault", FAULTS)
def test_auto_leaves_it_to_the_cpu(
    fault: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["-dev", "cpu", *GENERATE]) == 0
    expected = capsys.readouterr().out
    reason = fault(monkeypatch)
    assert cli.main(["-dev", "auto", *GENERATE]) == 0
    shown = capsys.readouterr()
    assert shown.out == expected
    assert reason in shown.err
    assert " layers on cpu, " in shown.err


def test_what_fails_while_it_runs(device: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    import pyopencl as cl

    buffer = device.alloc(64)

    def fail(*_: Any, **__: Any) -> None:
        raise cl.RuntimeError("clEnqueueReadBuffer failed: OUT_OF_RESOURCES")

    monkeypatch.setattr(cl, "enqueue_copy", fail)
    with pytest.raises(BackendError, match=r"failed while reading 64 bytes: .*RESOURCES"):
        buffer.read(0, 64)
    with pytest.raises(BackendError, match="cannot receive 4 bytes"):
        buffer.write(0, np.zeros(4, np.uint8))


def test_the_list_of_devices_says_why_there_is_none(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    reason = no_platform(monkeypatch)
    assert cli.main(["--list-devices"]) == 0
    shown = capsys.readouterr()
    assert "cpu: " in shown.out
    assert f"opencl: {reason}" in shown.err


@pytest.mark.parametrize(
    ("code", "advice"),
    [
        ("DEVICE_NOT_AVAILABLE", "load the model again, or use another"),
        ("OUT_OF_RESOURCES", "use a smaller n_ctx"),
    ],
)
def test_a_device_that_is_gone(
    device: Any, monkeypatch: pytest.MonkeyPatch, code: str, advice: str
) -> None:
    import pyopencl as cl

    buffer = device.alloc(64)

    def fail(*_: Any, **__: Any) -> None:
        raise cl.RuntimeError(f"clEnqueueFillBuffer failed: {code}")

    monkeypatch.setattr(cl, "enqueue_fill_buffer", fail)
    with pytest.raises(BackendError, match=f"cannot fill 64 bytes: .*{code}.*; .*{advice}"):
        buffer.clear()


def read_in_fork() -> None:
    buffer = registry.devices("opencl")[0].alloc(64)

    def is_refused() -> bool:
        with pytest.raises(BackendError, match="start the process with spawn"):
            buffer.read(0, 4)
        return True

    buffer.clear()
    assert holds_in_fork(is_refused)
    assert buffer.read(0, 4).tolist() == [0] * 4


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_a_forked_process_is_told_to_be_spawned() -> None:
    """It would wait for threads that only its parent has."""
    run_alone(read_in_fork)


def test_a_compiler_that_does_not_know_the_cpu(
    device: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    import pyopencl as cl

    def fail(*_: Any, **__: Any) -> None:
        raise cl.RuntimeError("clBuildProgram failed\nerror: unknown target CPU 'generic'\nnote: x")

    monkeypatch.setattr(cl.Program, "build", fail)
    with pytest.raises(BackendError, match=r"unknown target CPU 'generic'.*; .*intel-opencl"):
        device.builder._build(("copy", ("f32", "f32"), (), ""))
