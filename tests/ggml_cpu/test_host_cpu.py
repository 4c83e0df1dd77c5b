"""What LLVM says of the CPU is asked once, and kept with the kernels."""

from __future__ import annotations

from pathlib import Path

import pytest

from ggml_cpu import elf, host_cpu
from ggml_py.machine import host

SOME = host_cpu.HostCPU("x86_64-unknown-linux-gnu", "zen", {"avx": True, "avx2": False})
CPU = """processor\t: {}
vendor_id\t: Some
cpu family\t: 26
model\t\t: {}
stepping\t: 1
cpu MHz\t\t: {}.1
flags\t\t: fpu {}

processor\t: 1
"""


@pytest.fixture(autouse=True)
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Path:
    monkeypatch.setenv("LLAMA_PY_CACHE", str(tmp_path))
    monkeypatch.setattr(host, "CPUINFO", tmp_path / "cpuinfo")
    monkeypatch.setattr(elf, "is_possible", lambda: True)
    monkeypatch.setattr(host_cpu, "_query", lambda: SOME)
    monkeypatch.setattr(host_cpu, "host_cpu", host_cpu.host_cpu.__wrapped__)
    host_cpu._read_cached.cache_clear()
    request.addfinalizer(host_cpu._read_cached.cache_clear)
    (tmp_path / "cpuinfo").write_text(CPU.format(0, 2, 4000, "avx"))
    return tmp_path / "host"


def found() -> host_cpu.HostCPU | None:
    """As another process finds it."""
    host_cpu._read_cached.cache_clear()
    return host_cpu._read_cached()


def test_kept(root: Path) -> None:
    assert found() is None
    host_cpu.keep()
    (file,) = root.iterdir()
    assert found() == SOME
    before = file.stat().st_mtime_ns
    host_cpu.keep()
    assert file.stat().st_mtime_ns == before


@pytest.mark.parametrize("other", [(0, 3, 4000, "avx"), (0, 2, 4000, "avx avx2")])
def test_another_cpu_has_its_own(root: Path, other: tuple[object, ...]) -> None:
    host_cpu.keep()
    (root.parent / "cpuinfo").write_text(CPU.format(*other))
    assert found() is None
    host_cpu.keep()
    assert len([*root.iterdir()]) == 2


def test_the_same_cpu_at_another_speed(root: Path) -> None:
    host_cpu.keep()
    (root.parent / "cpuinfo").write_text(CPU.format(1, 2, 1000, "avx"))
    assert found() == SOME


def test_another_version_of_llvm(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    host_cpu.keep()
    monkeypatch.setattr(host_cpu.llvmlite, "__version__", "0.1")
    assert found() is None


@pytest.mark.parametrize("at", [0, 30, -70, -1])
def test_damaged(root: Path, at: int) -> None:
    host_cpu.keep()
    (file,) = root.iterdir()
    content = bytearray(file.read_bytes())
    content[at] ^= 1
    file.write_bytes(content)
    assert found() is None and host_cpu.host_cpu() == SOME
    host_cpu.keep()
    assert found() == SOME


@pytest.mark.parametrize("text", ["", "no such lines", "flags\t\t: fpu\n"])
def test_where_the_cpu_is_not_told(root: Path, text: str) -> None:
    (root.parent / "cpuinfo").write_text(text)
    host_cpu.keep()
    assert not root.exists() and found() is None


def test_a_directory_that_others_can_write_to(root: Path) -> None:
    host_cpu.keep()
    root.chmod(0o777)
    assert found() is None
