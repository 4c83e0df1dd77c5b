"""Cores and memory, with what containers take away."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from ggml_py.machine import host

GIB = 2**30


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """8 CPUs on 4 cores, 16 GiB, 10 of them available; files under the folder add limits."""
    for n in range(8):
        put(tmp_path / f"cpu/cpu{n}/topology/thread_siblings_list", f"{n % 4},{n % 4 + 4}")
    monkeypatch.setattr(host, "CPUS", tmp_path / "cpu")
    monkeypatch.setattr(host, "FAST_CPUS", tmp_path / "fast")
    monkeypatch.setattr(host, "CGROUPS", tmp_path / "cgroup")
    monkeypatch.setattr(host, "OWN_CGROUP", tmp_path / "own")
    monkeypatch.setattr(host, "logical_cpus", lambda: list(range(8)))
    monkeypatch.setattr(host, "MEMINFO", tmp_path / "meminfo")
    kib = {"MemTotal": 16 << 20, "MemFree": 5, "MemAvailable": 10 << 20}
    put(tmp_path / "meminfo", "\n".join(f"{name}: {n} kB" for name, n in kib.items()))
    put(tmp_path / "own", "0::/")
    return tmp_path


def put(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{text}\n", "utf-8")


def threads() -> int:
    return host.default_threads.__wrapped__()


def test_a_core_counts_once(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert (threads(), host.description()) == (4, "4 cores (8 CPUs)")
    monkeypatch.setattr(host, "logical_cpus", lambda: [0, 4, 1])
    assert (threads(), host.description()) == (2, "2 cores (3 CPUs)")


@pytest.mark.parametrize(
    ("quota", "n"), [("max 100000", 4), ("250000 100000", 2), ("5000 9999", 1)]
)
def test_the_quota_of_a_container(machine: Path, quota: str, n: int) -> None:
    put(machine / "own", "0::/a/b")
    put(machine / "cgroup/a/cpu.max", quota)
    put(machine / "cgroup/a/b/cpu.max", "max 100000")
    assert threads() == n
    assert ("quota" in host.description()) == ("max" not in quota)


def test_an_old_container(machine: Path) -> None:
    put(machine / "own", "3:cpu,cpuacct:/x\n2:memory:/x")
    put(machine / "cgroup/cpu/x/cpu.cfs_quota_us", "300000")
    put(machine / "cgroup/cpu/x/cpu.cfs_period_us", "100000")
    put(machine / "cgroup/cpu/cpu.cfs_quota_us", "-1")
    put(machine / "cgroup/memory/x/memory.limit_in_bytes", str(4 * GIB))
    put(machine / "cgroup/memory/x/memory.usage_in_bytes", str(3 * GIB))
    put(machine / "cgroup/memory/x/memory.stat", f"cache 5\ntotal_inactive_file {GIB}")
    assert threads() == 3
    assert host.memory() == (2 * GIB, 4 * GIB)


def test_what_caches_hold_is_available(machine: Path) -> None:
    assert host.memory() == (10 * GIB, 16 * GIB)
    put(machine / "cgroup/memory.max", "max")
    assert host.memory() == (10 * GIB, 16 * GIB)
    put(machine / "cgroup/memory.max", str(2 * GIB))
    put(machine / "cgroup/memory.current", str(3 * GIB))
    assert host.memory() == (0, 2 * GIB)


def test_a_group_that_is_slowed_down_beyond_its_high_limit(machine: Path) -> None:
    put(machine / "cgroup/memory.max", str(8 * GIB))
    put(machine / "cgroup/memory.high", str(4 * GIB))
    put(machine / "cgroup/memory.current", str(3 * GIB))
    put(machine / "cgroup/memory.stat", f"active_file {GIB}\ninactive_file {GIB}")
    assert host.memory() == (3 * GIB, 4 * GIB)


def test_memory_of_this_process(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "STATUS", machine / "status")
    put(machine / "status", "Name:\tpython\nRssAnon:\t    2048 kB\nRssFile:\t 9 kB")
    assert host.own_memory() == 2 << 20


def test_where_there_is_no_proc(machine: Path) -> None:
    psutil = pytest.importorskip("psutil")
    (machine / "meminfo").unlink()
    total = psutil.virtual_memory().total
    assert 0 < host.memory()[0] <= host.memory()[1] == total


LINUX = {host.AT_HWCAP: 1 << 20 | 1 << 22 | 3, host.AT_HWCAP2: 1 << 14}


@pytest.mark.parametrize(
    ("platform", "seam", "answer"),
    [
        ("linux", "_auxiliary", LINUX.__getitem__),
        ("darwin", "_sysctl", lambda n: bytes([n[16:] in ("FEAT_DotProd", "FEAT_BF16"), 0])),
        ("win32", "_processor_has", lambda n: n in (43, 68)),
        ("plan9", "_auxiliary", LINUX.__getitem__),
    ],
)
def test_arm_features(
    platform: str, seam: str, answer: Callable[..., object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host, "SYSTEM", platform)
    monkeypatch.setattr(host, seam, answer)
    assert host.arm_features() == (set() if platform == "plan9" else {"dotprod", "bf16"})


@pytest.mark.skipif(sys.platform != "linux", reason="asks Linux")
def test_what_the_kernel_told() -> None:
    assert host._auxiliary(6) == os.sysconf("SC_PAGESIZE")  # AT_PAGESZ
    assert host._auxiliary(host.AT_HWCAP) != 0


def test_this_machine() -> None:
    available, total = host.memory()
    assert 0 < available <= total
    assert 1 <= host.default_threads() <= host.physical_cores() <= len(host.logical_cpus())


@pytest.fixture
def elsewhere(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Neither the files nor the calls of Linux."""
    for name in ("CPUS", "CGROUPS", "OWN_CGROUP", "MEMINFO", "CPUINFO", "FAST_CPUS"):
        monkeypatch.setattr(host, name, Path("nowhere"))
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 12)
    return monkeypatch


@pytest.mark.parametrize(
    ("says", "cores"),
    [({"hw.perflevel0.physicalcpu": 8, "hw.physicalcpu": 12}, 8), ({"hw.physicalcpu": 6}, 6)],
)
def test_macos(elsewhere: pytest.MonkeyPatch, says: dict[str, int], cores: int) -> None:
    """Its slow cores are not counted; an older one has no such kinds."""
    told = {name: n.to_bytes(4, sys.byteorder) for name, n in says.items()}
    told["machdep.cpu.brand_string"] = b"Apple M9\0"
    elsewhere.setattr(host, "SYSTEM", "darwin")
    elsewhere.setattr(host, "_sysctl", lambda name: told.get(name, b""))
    assert (host.physical_cores(), threads()) == (cores, cores)
    assert host.summary().startswith("Apple M9, ")
    assert f"{cores} cores (12 CPUs)" in host.summary()


def test_windows(elsewhere: pytest.MonkeyPatch) -> None:
    psutil = pytest.importorskip("psutil")
    elsewhere.setattr(host, "SYSTEM", "win32")
    elsewhere.setattr(psutil.Process, "cpu_affinity", lambda _: [3, 1])
    elsewhere.setattr(psutil, "cpu_count", lambda logical: 6)
    assert (host.logical_cpus(), host.physical_cores()) == ([1, 3], 2)
    assert host.cpu_name()
    assert 0 < host.memory()[0] <= host.memory()[1]


def test_cores_of_two_kinds(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """CPUs 0, 4 and 1, 5 are on fast cores, the others on slow ones."""
    put(machine / "fast", "0-1,4-5")
    assert host.physical_cores() == 2
    monkeypatch.setattr(host, "logical_cpus", lambda: [2, 3])
    assert host.physical_cores() == 2
