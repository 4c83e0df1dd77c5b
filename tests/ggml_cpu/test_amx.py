"""AMX: who may use it, its products and attention, also on CPUs that have AVX512 with bf16."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from ggml_cpu import target
from ggml_cpu.host_cpu import HostCPU
from ggml_cpu.targets import AMX_FEATURES
from ggml_py.machine import host
from tests.support.limits import SECONDS

ROOT = Path(__file__).parents[2]
can_emulate = pytest.mark.skipif(
    "avx512-bf16" not in target.usable(target.host_features()), reason="needs AVX512 with bf16"
)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, ...]]:
    """What Linux is asked, which says yes."""
    found: list[tuple[int, ...]] = []
    monkeypatch.setattr(host, "SYSTEM", "linux")
    monkeypatch.setattr(host, "_arch_prctl", lambda *a: found.append(a) or 0)
    monkeypatch.setattr(host, "allows_amx", host.allows_amx.__wrapped__)
    return found


def with_amx(monkeypatch: pytest.MonkeyPatch, has: bool = True) -> dict[str, bool]:
    """The features of a machine that has it, as far as they may be used."""
    told = dict.fromkeys(AMX_FEATURES, has) | {"avx2": True}
    monkeypatch.setattr(target, "host_cpu", lambda: HostCPU("x86_64", "some", told))
    return target.host_features()


def test_linux_is_asked(asked: list[tuple[int, ...]], monkeypatch: pytest.MonkeyPatch) -> None:
    found = with_amx(monkeypatch)
    assert all(found[name] for name in AMX_FEATURES)
    assert asked == [(0x1023, 18)]


def test_linux_refuses(asked: list[tuple[int, ...]], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "_arch_prctl", lambda code, argument: -1)
    found = with_amx(monkeypatch)
    assert not any(found[name] for name in AMX_FEATURES) and found["avx2"]


def test_nobody_is_asked(asked: list[tuple[int, ...]], monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a CPU without it, and on other systems, which do not give it."""
    with_amx(monkeypatch, has=False)
    monkeypatch.setattr(host, "SYSTEM", "win32")
    found = with_amx(monkeypatch)
    assert asked == [] and not any(found[name] for name in AMX_FEATURES)


@pytest.mark.skipif(sys.platform != "linux", reason="asks Linux")
def test_the_answer_of_linux() -> None:
    assert host.allows_amx() in (True, False)
    assert host._arch_prctl(0x1024, 1000) == -1  # no such component
    assert host._arch_prctl(0x1022, 0) == -1  # XCOMP permissions, to address 0


def emulated(*command: str) -> str:
    """What a module of Python's says, run by itself."""
    run = subprocess.run(
        [sys.executable, "-m", *command],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=4 * SECONDS,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    return run.stdout


@can_emulate
def test_some_products() -> None:
    """In place and in panels; wide tiles and narrow ones; odd numbers of elements."""
    chosen = "test_sizes and 17 and (q8_0 or q6_K) or test_any_k and (bf16 or f16)"
    chosen = f"({chosen}) and not f32"
    plugin = ("-p", "tests.support.emulated_amx", "-p", "no:cacheprovider")
    tests = "tests/ggml_cpu/test_matmul.py"
    assert "18 passed" in emulated("pytest", "-q", *plugin, tests, "-k", chosen)


@can_emulate
def test_some_attention() -> None:
    plugin = ("-p", "tests.support.emulated_amx", "-p", "no:cacheprovider")
    tests = "tests/ggml_cpu/test_attention_integers.py"
    assert "6 passed" in emulated("pytest", "-q", *plugin, tests, "-k", "test_head_sizes and 577")


@can_emulate
@pytest.mark.slow
@pytest.mark.parametrize("op", ["MUL_MAT", "MUL_MAT_ID", "FLASH_ATTN_EXT"])
def test_all_products(op: str) -> None:
    found = emulated("tests.support.emulated_amx", "-b", "cpu", "-o", op)
    assert " as avx512-amx, " in found and "tests passed" in found
