"""Devices of backends that may not be installed here."""

from __future__ import annotations

import pytest

from ggml_py.backend import Device, registry
from ggml_py.errors import BackendError


def devices_or_skip(backend: str) -> tuple[Device, ...]:
    """The backend's devices; the test is skipped, with the reason, where there are none."""
    try:
        return registry.devices(backend)
    except BackendError as e:
        pytest.skip(str(e))
