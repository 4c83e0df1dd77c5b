"""How many processes compile, and with which Numba."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest

from ggml_cpu import compile, numba_version
from ggml_cpu.fingerprints import environment
from ggml_py.errors import BackendError
from ggml_py.machine import host

GIB = 2**30


@pytest.mark.parametrize(
    ("cpus", "quota", "memory", "kernels", "n"),
    [
        (2, None, 100 * GIB, 30, 2),
        (8, None, 100 * GIB, 3, 3),
        (8, 4.0, 100 * GIB, 30, 4),
        (8, 0.5, 100 * GIB, 30, 1),
        (8, 2.9, 100 * GIB, 30, 2),
        (8, None, 2 * GIB, 30, 4),
        (8, None, GIB // 8, 30, 1),
        (192, None, 1000 * GIB, 300, compile.MOST_CHILDREN),
    ],
    ids=["cpus", "kernels", "quota", "half a CPU", "odd quota", "memory", "no memory", "many"],
)
def test_number_of_processes(
    monkeypatch: pytest.MonkeyPatch,
    cpus: int,
    quota: float | None,
    memory: int,
    kernels: int,
    n: int,
) -> None:
    monkeypatch.setattr(host, "logical_cpus", lambda: list(range(cpus)))
    monkeypatch.setattr(host, "cpu_quota", lambda: quota)
    monkeypatch.setattr(host, "memory", lambda: (memory, 2 * memory))
    assert compile.n_children(kernels) == n


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, str]]:
    """Versions of packages, to be changed."""
    found: dict[str, str] = {}

    def version(name: str) -> str:
        if name not in found:
            raise PackageNotFoundError(name)
        return found[name]

    monkeypatch.setattr(numba_version, "version", version)
    numba_version.numba_version.cache_clear()
    environment.cache_clear()
    yield found
    numba_version.numba_version.cache_clear()
    environment.cache_clear()


@pytest.mark.parametrize("known", ["0.62.0", "0.62.1", "0.68.1", "0.68.0rc1", "0.65.1.dev3"])
def test_versions_that_work(installed: dict[str, str], known: str) -> None:
    installed["numba"] = known
    assert numba_version.numba_version() == known


@pytest.mark.parametrize("other", ["0.61.2", "0.59.1", "0.69.0", "0.69.0rc1", "1.0", "none"])
def test_versions_that_do_not(installed: dict[str, str], other: str) -> None:
    """One line, said when kernels are looked for: those of another Numba are no use."""
    if other != "none":
        installed["numba"] = other
    with pytest.raises(BackendError, match=re.escape(f">=0.62,<0.69, got {other};")):
        environment()


def test_the_package_asks_for_these_versions() -> None:
    project = (Path(__file__).parents[2] / "pyproject.toml").read_text()
    oldest, before = numba_version.OLDEST, numba_version.BEFORE
    assert f'"numba>={oldest[0]}.{oldest[1]},<{before[0]}.{before[1]}",' in project
