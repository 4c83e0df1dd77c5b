"""Backends are found by their names, and where they say that they are."""

from __future__ import annotations

from importlib.metadata import EntryPoint

import pytest

from ggml_py.backend import registry
from ggml_py.errors import BackendError
from ggml_py.machine.extras import install_hint


def _nothing_is_looked_through() -> dict[str, EntryPoint]:
    raise AssertionError("all installed packages were looked through")


@pytest.mark.parametrize("name", registry.backend_names())
def test_the_short_way_leads_where_the_entry_point_does(name: str) -> None:
    where, _ = registry._entry(name)
    assert where == registry._entry_points()[name].value


@pytest.mark.parametrize("name", ["cpu", "ref"])
def test_a_device_is_had_without_looking_through_all_packages(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(registry, "_entry_points", _nothing_is_looked_through)
    monkeypatch.delitem(registry.opened, name, raising=False)
    assert registry.device(name).name == name
    assert registry._backend_name(f"{name}12") == name


def test_devices_in_use_stay() -> None:
    before = registry.device("ref")
    registry.refresh()
    assert registry.device("ref") is before


def test_an_unknown_one_is_told_with_those_that_there_are() -> None:
    with pytest.raises(BackendError, match=r"unknown backend 'nothing'; installed: cpu, .*ref"):
        registry.device("nothing7")


@pytest.mark.parametrize("name", ["cuda", "CUDA0", "vulkan1", "Metal", "gpu"])
def test_unknown_devices_name_the_extra_for_gpus(name: str) -> None:
    with pytest.raises(BackendError) as refused:
        registry.device(name)
    assert str(refused.value).endswith(
        f"; GPUs are opencl0, ...: {install_hint('opencl')}, with the GPU's OpenCL driver"
    )


def test_an_unknown_number_of_a_device_is_told_with_the_others() -> None:
    with pytest.raises(BackendError, match=r"unknown device 'ref7'; known: ref$"):
        registry.device("ref7")
