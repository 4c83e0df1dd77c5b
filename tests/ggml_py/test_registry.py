"""Backends are found by their names, and where they say that they are."""

from __future__ import annotations

from importlib.metadata import EntryPoint

import pytest

from ggml_py import registry
from ggml_py.errors import BackendError


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
    registry.devices.cache_clear()
    assert registry.device(name).name == name
    assert registry._backend_of(f"{name}12") == name


def test_an_unknown_one_is_told_with_those_that_there_are() -> None:
    with pytest.raises(BackendError, match=r"no backend named 'nothing'; installed: cpu, .*ref"):
        registry.device("nothing7")
