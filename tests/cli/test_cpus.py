"""Threads: how many, on which CPUs, how urgently."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Collection
from typing import Any

import pytest

import llama_py
from ggml_cpu.backend import CPUDevice
from ggml_py.errors import ModelError
from ggml_py.machine import host
from llama_py_tools.command import cpus
from llama_py_tools.command.cpus import CpuParams, enter, mask, pin, places, span
from tests.support.commands import clean_environment
from tests.support.limits import SECONDS


def test_texts() -> None:
    assert mask("0x5") == {0, 2} == mask("5")
    assert span("2-4") == {2, 3, 4} and span("-1") == {0, 1}
    assert span("1-") == {*range(1, os.cpu_count() or 1)}
    for parse, text in ((mask, "xyz"), (span, "3"), (span, "a-b")):
        with pytest.raises(ValueError, match="expected"):
            parse(text)


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> list[Collection[int]]:
    """One with CPUs 0 to 7; what the process is moved to."""
    moved: list[Collection[int]] = []
    monkeypatch.setattr(host, "usable_cpus", lambda: frozenset(range(8)))
    monkeypatch.setattr(host, "logical_cpus", lambda: [*range(8)])
    monkeypatch.setattr(host, "has_affinity", lambda: True)
    monkeypatch.setattr(host, "current_cpu", lambda: 5)
    monkeypatch.setattr(host, "set_affinity", moved.append)
    return moved


def test_the_process_is_moved(machine: list[Collection[int]]) -> None:
    enter(CpuParams(cpu_mask=frozenset({1, 2, 99}), cpu_range=frozenset({4})))
    enter(CpuParams())
    assert machine == [{1, 2, 4}]
    with pytest.raises(ModelError, match=r"CPUs must be some of 0,1,2.*, got 8,9"):
        enter(CpuParams(cpu_mask=frozenset({8, 9})))


def test_places_of_threads(machine: list[Collection[int]]) -> None:
    mine, theirs = frozenset({1, 2}), frozenset({3, 4})
    assert places(CpuParams(cpu_mask=mine)) == ([], None)
    assert places(CpuParams(cpu_mask=mine, cpu_strict=1)) == ([[1], [2]], None)
    assert places(CpuParams(cpu_mask_batch=theirs)) == ([], [[3, 4]])
    found = places(CpuParams(cpu_range=mine, cpu_strict=1, cpu_range_batch=theirs))
    assert found == ([[1], [2]], [[3], [4]])
    found = places(CpuParams(cpu_range=mine, cpu_strict_batch=1))
    assert found == ([], [[1], [2]])


def test_numa(
    machine: list[Collection[int]],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(host, "numa_nodes", lambda: [[0, 1, 2, 3], [4, 5, 6, 7]])
    enter(CpuParams(numa="isolate"))
    assert machine == [{4, 5, 6, 7}]
    assert places(CpuParams(numa="distribute")) == ([[0, 1, 2, 3], [4, 5, 6, 7]], None)
    assert places(CpuParams(numa="numactl")) == ([], None)
    monkeypatch.setattr(host, "numa_nodes", lambda: [[0, 1]])
    assert caplog.messages == []
    assert places(CpuParams(numa="distribute")) == ([], None)
    assert caplog.messages == ["--numa has no effect: this machine has one NUMA node"]


def test_numa_nodes(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    for i, text in ((0, "0-1\n"), (10, "6\n"), (2, "2,4\n"), (3, "\n")):
        (tmp_path / f"node{i}").mkdir()
        (tmp_path / f"node{i}" / "cpulist").write_text(text)
    monkeypatch.setattr(host, "NODES", tmp_path)
    monkeypatch.setattr(host, "logical_cpus", lambda: [0, 1, 2, 6])
    assert host.numa_nodes() == [[0, 1], [2], [6]]


def test_priority(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(os, "setpriority", lambda *a: asked.append(a), raising=False)
    monkeypatch.setattr(os, "PRIO_PROCESS", 0, raising=False)
    enter(CpuParams(prio=2))
    assert asked == [(0, 0, -10)]

    def refuse(*_: Any) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "setpriority", refuse)
    enter(CpuParams(prio=3))
    assert caplog.messages == ["--prio 3: Operation not permitted"]


def test_devices_without_threads(caplog: pytest.LogCaptureFixture) -> None:
    device = CPUDevice()
    with llama_py.load(device="ref") as model:
        pin([*model.devices, device], CpuParams(cpu_strict=1))
    assert caplog.messages == [
        "device ref has no threads to pin to CPUs, so CPU options have no effect"
    ]
    assert device.executor.cpus == [[cpu] for cpu in sorted(host.logical_cpus())]


def test_batches_have_threads_of_their_own() -> None:
    device = CPUDevice()
    device.set_threads(2)
    assert device._executor(True) is device.executor
    device.set_batch_threads(3)
    assert device._executor(True).n_threads == 3 and device.executor.n_threads == 2
    device.set_batch_threads(None)
    device.pin([], [[0]])
    assert device._executor(True).cpus == [[0]] and device.executor.cpus == []
    device.pin([[0]])
    assert device._executor(True) is device.executor


def test_graphs_of_one_token_and_of_several() -> None:
    with llama_py.load() as model:
        ctx = model.context(256, n_threads=1, n_threads_batch=2)
        expected = ctx.decode([5, 6, 7])
        used = [plan.splits[0].program.executor.n_threads for _, plan in ctx.runner.graphs]
        ctx.decode([8])
        used += [plan.splits[0].program.executor.n_threads for _, plan in ctx.runner.graphs[:1]]
        assert used == [2, 1]
        alone = model.context(256, n_threads=1)
        assert (alone.decode([5, 6, 7]) == expected).all()
        assert model.devices[0]._executor(True).n_threads == 1  # type: ignore[attr-defined]


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="needs sched_setaffinity")
def test_a_command_stays_there() -> None:
    cpu = max(os.sched_getaffinity(0))
    script = (
        "import os; from llama_py_tools.generate import cli;"
        f"cli.main(['-n', '2', '-C', '{1 << cpu:x}', '--cpu-strict', '1', '--prio', '-1', '-t',"
        " '1']);"
        "print(os.sched_getaffinity(0), os.getpriority(os.PRIO_PROCESS, 0))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        timeout=SECONDS,
        env=clean_environment(),
        stdin=subprocess.DEVNULL,
    )
    nice = os.getpriority(os.PRIO_PROCESS, 0)  # which only root may lower
    nice = 5 if nice <= 5 or os.geteuid() == 0 else nice
    assert done.stdout.splitlines()[-1] == f"{{{cpu}}} {nice}"
    assert cpus.NICE[-1] == 5
