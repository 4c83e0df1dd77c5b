"""Tests of the OpenCL backend run where there is a device: `pip install 'llama-py[pocl]'`."""

from __future__ import annotations

from typing import Any

import pytest

from ggml_py import registry
from ggml_py.errors import BackendError


@pytest.fixture(scope="session")
def device() -> Any:
    try:
        found = registry.devices("opencl")
    except BackendError as e:
        pytest.skip(str(e))
    if not found:
        pytest.skip("no OpenCL device")
    return found[0]
