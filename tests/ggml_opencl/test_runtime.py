"""Which OpenCL is used where none is registered with the machine."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ggml_opencl import runtime


@pytest.fixture(autouse=True)
def nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No driver, no variable, no package."""
    monkeypatch.delenv("OCL_ICD_VENDORS", raising=False)
    monkeypatch.setattr(runtime, "SYSTEM", tmp_path / "vendors")
    monkeypatch.setattr(runtime, "_find_file", lambda package, name="": None)


def with_package(monkeypatch: pytest.MonkeyPatch, *packages: str) -> None:
    found = lambda package, name="": Path(f"/env/{package}") if package in packages else None  # noqa: E731
    monkeypatch.setattr(runtime, "_find_file", found)


def test_the_package_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    runtime.use_installed()
    assert "OCL_ICD_VENDORS" not in os.environ
    with_package(monkeypatch, runtime.PACKAGE)
    monkeypatch.setenv("OCL_ICD_VENDORS", "")
    monkeypatch.delenv("OCL_ICD_VENDORS")
    runtime.use_installed()
    assert os.environ["OCL_ICD_VENDORS"] == f"/env/{runtime.PACKAGE}"


def test_what_is_there_already_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    with_package(monkeypatch, runtime.PACKAGE)
    monkeypatch.setenv("OCL_ICD_VENDORS", "mine")
    runtime.use_installed()
    assert os.environ["OCL_ICD_VENDORS"] == "mine"


def test_a_registered_driver_is_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    with_package(monkeypatch, runtime.PACKAGE)
    runtime.SYSTEM.mkdir()
    (runtime.SYSTEM / "gpu.icd").write_text("libgpu.so")
    runtime.use_installed()
    assert "OCL_ICD_VENDORS" not in os.environ


def test_nor_is_pocl(monkeypatch: pytest.MonkeyPatch) -> None:
    with_package(monkeypatch, runtime.PACKAGE, runtime.POCL)
    runtime.use_installed()
    assert "OCL_ICD_VENDORS" not in os.environ
